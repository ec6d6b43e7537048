import type { StoredEvent } from '@margay/contracts';
import { MemoryBlobStore, MemoryCommitStore, type CommitDocument } from '@margay/log';
import {
  assertPaired,
  FakeSandbox,
  runRequest,
  scriptedModel,
  toolDescriptor,
  until,
  VirtualClock,
  type FakeTool,
  type ScriptedAnswer,
  type ScriptedModel,
} from '@margay/testing';
import {
  createEngine,
  journalOn,
  SequenceIds,
  type EngineSession,
  type ModelRequest,
  type ToolOutcome,
} from '../index';

const AGAIN = 'Once more.';
const STOP_ME = 'Wait for me.';
const CALLS = 7;
const look = (path: string) => ({ name: 'look', args: { path } });

/** Parallel and exclusive calls of each class, in three answers. */
const SCRIPT: readonly ScriptedAnswer[] = [
  { text: 'Looking.', calls: [look('a'), look('b'), look('c')] },
  { calls: [{ name: 'shell' }, look('d')] },
  { calls: [{ name: 'write' }, { name: 'shell' }] },
  { text: 'Done.' },
];

/** What is asked a second time is answered at once. */
function answers(request: ModelRequest): ScriptedAnswer {
  const turn = request.messages.slice(request.messages.findLastIndex(({ role }) => role === 'user'));
  if (turn[0]?.role === 'user' && turn[0].text === AGAIN) return { text: 'Fine.' };
  if (request.messages.some((message) => message.role === 'user' && message.text === STOP_ME))
    return request.messages.some(({ role }) => role === 'tool') ? { text: 'Stopped.' } : { calls: [look('x'), { name: 'shell' }] }; // prettier-ignore
  return SCRIPT[turn.filter(({ role }) => role === 'assistant').length] ?? { failure: new Error('one step too many') };
}

interface World {
  clock: VirtualClock;
  store: MemoryCommitStore;
  model: ScriptedModel;
  sandbox: FakeSandbox;
  open: (sessionId?: string) => Promise<EngineSession>;
  /** Another process that writes into the same log. */
  elsewhere: ReturnType<typeof journalOn>;
}

let worlds = 0;

/** @param hangsAt number of the tool call, from 1, that never comes to an end by itself */
function world(documents: readonly CommitDocument[] = [], hangsAt?: number): World {
  const clock = new VirtualClock();
  const ids = new SequenceIds();
  // Ids of one engine differ from another's.
  worlds += 1;
  for (let skipped = 0; skipped < worlds * 1000; skipped += 1) ids.hex(1);
  const store = new MemoryCommitStore();
  for (const document of documents) void store.insert(document);
  const blobs = new MemoryBlobStore();
  let calls = 0;
  const run = (): ToolOutcome | Promise<ToolOutcome> => {
    calls += 1;
    return calls === hangsAt ? new Promise(() => undefined) : { status: 'ok', result: `result ${calls}` };
  };
  const tool = (fields: Parameters<typeof toolDescriptor>[0]): FakeTool => ({
    descriptor: toolDescriptor(fields),
    run,
  });
  const sandbox = new FakeSandbox(
    [
      tool({
        tool_id: 'look',
        interrupt_behavior: 'cancel',
        schema: { type: 'object', properties: { path: { type: 'string' } } },
      }),
      tool({ tool_id: 'write', effect: 'keyed' }),
      tool({ tool_id: 'shell', effect: 'unkeyed', concurrency_safe: false }),
    ],
    { incarnation: 'one', results: new Map() },
  );
  const model = scriptedModel(answers);
  const engine = createEngine({ clock, ids, store, blobs, model, tools: [sandbox] });
  const open = (sessionId?: string): Promise<EngineSession> =>
    sessionId === undefined ? engine.createSession() : engine.openSession(sessionId);
  const elsewhere = journalOn(store, { clock, ids: new SequenceIds(), blobs });
  return { clock, store, model, sandbox, open, elsewhere };
}

function expectPaired({ model }: World): void {
  expect(model.requests.length).toBeGreaterThan(0);
  for (const request of model.requests) assertPaired(JSON.parse(request) as ModelRequest);
}

async function eventsOf(session: EngineSession): Promise<StoredEvent[]> {
  const events: StoredEvent[] = [];
  for await (const event of session.events()) events.push(event);
  return events;
}

describe('no call is left without its result in what the model is asked next (pain 9)', () => {
  let sessionId: string;
  let log: CommitDocument[];
  let prefixes: number[];

  beforeAll(async () => {
    const whole = world();
    const session = await whole.open();
    sessionId = session.id;
    expect(await session.run('Do it.')).toMatchObject({ doneReason: 'completed', text: 'Done.' });
    expect(whole.sandbox.ran).toHaveLength(CALLS);
    log = [];
    for await (const document of whole.store.range(sessionId, 1)) log.push(document);
    const first = log.findIndex(({ head }) => head.run !== null) + 1;
    prefixes = Array.from({ length: log.length - first }, (_, index) => first + index);
    expect(prefixes.length).toBeGreaterThan(6);
  });

  it('after a crash at every commit', async () => {
    for (const prefix of prefixes) {
      const next = world(log.slice(0, prefix));
      const session = await next.open(sessionId);
      expect(await session.resume()).toMatchObject({ text: 'Done.' });
      await session.run(AGAIN);
      expectPaired(next);
    }
  });

  it('after a crash and then a cancel at every commit', async () => {
    for (const prefix of prefixes) {
      const next = world(log.slice(0, prefix));
      const session = await next.open(sessionId);
      expect(await session.cancel()).toBe(true);
      expect(await session.run(AGAIN)).toMatchObject({ text: 'Fine.' });
      expectPaired(next);
    }
  });

  it('after a cancel, and a retry or going on, at every commit', async () => {
    const run = runRequest(AGAIN);
    for (const prefix of prefixes) {
      for (const action of ['retry', 'continue'] as const) {
        const next = world(log.slice(0, prefix));
        const session = await next.open(sessionId);
        await session.cancel();
        const user = (await eventsOf(session)).find(({ type }) => type === 'user');
        const from = { seq: user?.seq ?? 0, ts: log[1]?.events.at(-1)?.ts ?? 0, runId: user?.run_id ?? '' };
        const recovered = await next.elsewhere.loop.submit(session.id, {
          kind: 'recover',
          commitId: 'r',
          action,
          run,
          ...(action === 'retry' ? { from } : {}),
        });
        expect(recovered).toMatchObject({ ok: true });
        expect(await session.resume()).toMatchObject({ text: 'Fine.' });
        expectPaired(next);
      }
    }
  });

  const everyCall = Array.from({ length: CALLS }, (_, index) => index + 1);

  it.each(everyCall)('after a cancel while call %i runs', async (call) => {
    const next = world([], call);
    const session = await next.open();
    const running = session.run('Do it.');
    await until(() => next.sandbox.ran.length >= call);
    await session.cancel();
    expect(await running).toMatchObject({ doneReason: 'canceled' });
    expect(await session.run(AGAIN)).toMatchObject({ text: 'Fine.' });
    expectPaired(next);
  });

  it.each(everyCall)('after a crash while call %i runs, wherever that is taken up', async (call) => {
    const next = world([], call);
    const session = await next.open();
    const running = session.run('Do it.').catch((error: { reason: string }) => error.reason);
    await until(() => next.sandbox.ran.length >= call);
    const documents: CommitDocument[] = [];
    for await (const document of next.store.range(session.id, 1)) documents.push(document);
    session.detach();
    expect(await running).toBe('run_fenced');
    const after = world(documents);
    const resumed = await after.open(session.id);
    expect(await resumed.resume()).toMatchObject({ text: 'Done.' });
    expectPaired(after);
  });

  it.each(everyCall)('after a time-out of call %i', async (call) => {
    const next = world([], call);
    const session = await next.open();
    const running = session.run('Do it.');
    await until(() => next.sandbox.ran.length >= call);
    await next.clock.advance(120_000);
    expect(await running).toMatchObject({ text: 'Done.' });
    const results = (await eventsOf(session)).filter(({ type }) => type === 'tool_result');
    expect(results.filter(({ payload }) => 'outcome' in payload && payload.outcome === 'timed_out')).toHaveLength(1);
    expectPaired(next);
  });
});

describe('an interrupt before an unkeyed call', () => {
  const shellOf = async (session: EngineSession): Promise<Record<string, unknown>> =>
    (await eventsOf(session)).findLast(({ type, payload }) => type === 'tool_result' && payload['tool_id'] === 'shell')
      ?.payload ?? {};

  async function interrupted(next: World, session: EngineSession, running: Promise<unknown>): Promise<void> {
    await until(() => next.sandbox.ran.length === 1);
    await session.interrupt();
    await next.clock.advance(5_000);
    await running;
    expect(next.sandbox.ran).toHaveLength(1);
  }

  it('means that it was not started', async () => {
    const next = world([], 1);
    const session = await next.open();
    await interrupted(next, session, session.run(STOP_ME));
    expect(await shellOf(session)).toMatchObject({ success: false, outcome: 'cancelled' });
  });

  it('leaves it unknown where another owner may have started it', async () => {
    const next = world([], 1);
    const session = await next.open();
    const running = session.run(STOP_ME).catch(() => undefined);
    await until(() => next.sandbox.ran.length === 1);
    const documents: CommitDocument[] = [];
    for await (const document of next.store.range(session.id, 1)) documents.push(document);
    session.detach();
    await running;
    const after = world(documents, 1);
    const resumed = await after.open(session.id);
    await interrupted(after, resumed, resumed.resume());
    expect(await shellOf(resumed)).toMatchObject({ success: false, outcome: 'unknown' });
  });
});

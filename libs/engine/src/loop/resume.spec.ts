import type { StoredEvent } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import { MemoryBlobStore, MemoryCommitStore, type CommitDocument } from '@margay/log';
import {
  assertPaired,
  FakeSandbox,
  VirtualClock,
  scriptedModel,
  toolDescriptor,
  type FakeTool,
  type SandboxMemory,
  type ScriptedAnswer,
  type ScriptedModel,
} from '@margay/testing';
import { createEngine, SequenceIds, type EngineSession, type ModelRequest } from '../index';

const FINAL = 'The first half and the second.';

const schema = { type: 'object', properties: { path: { type: 'string' } } };

/** One answer per step; the step is what the conversation holds, so any engine may ask. */
const SCRIPT: readonly ScriptedAnswer[] = [
  {
    text: 'Looking.',
    calls: [
      { name: 'look', args: { path: 'a' } },
      { name: 'look', args: { path: 'b' } },
    ],
  },
  {
    calls: [
      { name: 'write', args: { path: 'c' } },
      { name: 'look', args: { path: 'c' } },
    ],
  },
  { calls: [{ name: 'shell' }, { name: 'fail' }] },
  { calls: [{ name: 'look', args: '{"path": ' }, { name: 'nowhere' }] },
  { calls: [{ name: 'look', args: { path: 'd' } }, { name: 'slow' }, { name: 'shell' }, { name: 'write' }] },
  { text: 'The first half', finishReason: 'length' },
  { text: ' and the second.' },
];

const answers = (request: ModelRequest): ScriptedAnswer => {
  const step = request.messages.filter(({ role }) => role === 'assistant').length;
  return SCRIPT[step] ?? { failure: new Error(`asked for step ${step}`) };
};

function tools(clock: VirtualClock): FakeTool[] {
  const ok = (result: unknown) => ({ status: 'ok' as const, result });
  const slow = async () => {
    await clock.sleep(60);
    return ok('slow result');
  };
  return [
    {
      descriptor: toolDescriptor({ tool_id: 'look', schema }),
      run: ({ path }) => ok(`content of ${String(path)} `.repeat(9)),
    },
    {
      descriptor: toolDescriptor({ tool_id: 'write', effect: 'keyed', schema }),
      run: () => ok({ kind: 'diff', text: '+1' }),
    },
    {
      descriptor: toolDescriptor({ tool_id: 'shell', effect: 'unkeyed', concurrency_safe: false }),
      run: () => ok('done'),
    },
    {
      descriptor: toolDescriptor({ tool_id: 'fail' }),
      run: () => ({ status: 'error', result: null, error: 'no luck' }),
    },
    { descriptor: toolDescriptor({ tool_id: 'slow' }), run: slow },
  ];
}

/** A person speaks while the slow call runs, however it gets its result. */
class SteeredSandbox extends FakeSandbox {
  session: EngineSession | undefined;

  override async execute(
    ...[invocation, options]: Parameters<FakeSandbox['execute']>
  ): ReturnType<FakeSandbox['execute']> {
    if (invocation.toolId === 'slow' && this.session) await steerOnce(this.session);
    return super.execute(invocation, options);
  }
}

async function steerOnce(session: EngineSession): Promise<void> {
  for await (const { type } of session.events()) if (type === 'user_steer') return;
  await session.steer('Also mind the cat.');
}

interface World {
  store: MemoryCommitStore;
  blobs: MemoryBlobStore;
  model: ScriptedModel;
  sandbox: FakeSandbox;
  open: (sessionId?: string) => Promise<EngineSession>;
}

let worlds = 0;

function world(memory: SandboxMemory, documents: readonly CommitDocument[] = []): World {
  const clock = new VirtualClock();
  const ids = new SequenceIds();
  // Ids of one engine differ from another's.
  worlds += 1;
  for (let skipped = 0; skipped < worlds * 1000; skipped += 1) ids.hex(1);
  const store = new MemoryCommitStore();
  for (const document of documents) void store.insert(document);
  const blobs = new MemoryBlobStore();
  const model = scriptedModel(answers);
  const sandbox = new SteeredSandbox(tools(clock), memory);
  const engine = createEngine({ clock, ids, store, blobs, model, tools: [sandbox] });
  const open = async (sessionId?: string): Promise<EngineSession> =>
    (sandbox.session = sessionId === undefined ? await engine.createSession() : await engine.openSession(sessionId));
  return { store, blobs, model, sandbox, open };
}

async function documentsOf(store: MemoryCommitStore, sessionId: string): Promise<CommitDocument[]> {
  const documents: CommitDocument[] = [];
  for await (const document of store.range(sessionId, 1)) documents.push(document);
  return documents;
}

async function typesOf(session: EngineSession): Promise<string[]> {
  const types: string[] = [];
  for await (const { type } of session.events()) types.push(type);
  return types;
}

/** Epochs name the owner, so they differ between owners; nothing else may. */
function withoutEpochs(requests: readonly string[], sessionId: string): string[] {
  return requests.map((request) => request.replace(new RegExp(`${sessionId}\\.\\d+\\.`, 'g'), 'call.'));
}

describe('a run that is taken over', () => {
  const whole = world({ incarnation: 'one', results: new Map() });
  let sessionId: string;
  let log: CommitDocument[];
  let firstOfRun: number;

  beforeAll(async () => {
    const session = await whole.open();
    sessionId = session.id;
    const result = await session.run('Do it.');
    expect(result).toMatchObject({ doneReason: 'completed', text: FINAL, steps: 5 });
    log = await documentsOf(whole.store, sessionId);
    firstOfRun = log.findIndex(({ head }) => head.run !== null) + 1;
    expect(log.length).toBeGreaterThan(14);
  });

  async function resumeFrom(prefix: number, memory: SandboxMemory): Promise<World & { session: EngineSession }> {
    const next = world(memory, log.slice(0, prefix));
    const session = await next.open(sessionId);
    const result = await session.resume();
    expect(result).toMatchObject({ doneReason: 'completed', text: FINAL });
    const types = await typesOf(session);
    expect(types.filter((type) => type === 'assistant')).toHaveLength(1);
    expect(types.filter((type) => type === 'completion')).toHaveLength(1);
    expect(types.filter((type) => type === 'tool_call')).toHaveLength(12);
    expect(types.filter((type) => type === 'tool_result')).toHaveLength(12);
    for (const request of next.model.requests) assertPaired(JSON.parse(request) as ModelRequest);
    return { ...next, session };
  }

  it.each([
    ['a sandbox that ran every call', () => ({ incarnation: 'one', results: new Map(whole.sandbox.memory.results) })],
    ['a sandbox that ran none', () => ({ incarnation: 'one', results: new Map() })],
  ])('asks the model the same from every prefix of its log, with %s', async (_name, memory) => {
    const asked = withoutEpochs(whole.model.requests, sessionId);
    for (let prefix = firstOfRun; prefix < log.length; prefix += 1) {
      const { model } = await resumeFrom(prefix, memory());
      const again = withoutEpochs(model.requests, sessionId);
      const expected = asked.slice(asked.length - again.length);
      const differing = again.findIndex((request, index) => request !== expected[index]);
      expect({ prefix, differing }).toEqual({ prefix, differing: -1 });
    }
  });

  it('makes the first request of the new owner from the very same bytes', async () => {
    for (let prefix = firstOfRun; prefix < log.length; prefix += 1) {
      const { model } = await resumeFrom(prefix, whole.sandbox.memory);
      const first = model.requests[0] ?? '';
      expect({ prefix, isKnown: whole.model.requests.includes(first) }).toEqual({ prefix, isKnown: true });
    }
  });

  it('runs no call again that has a result in the sandbox', async () => {
    for (let prefix = firstOfRun; prefix < log.length; prefix += 1) {
      const memory = { incarnation: 'one', results: new Map(whole.sandbox.memory.results) };
      const { sandbox } = await resumeFrom(prefix, memory);
      expect(sandbox.ran.filter((callId) => whole.sandbox.memory.results.has(callId))).toEqual([]);
    }
  });

  it('reports unkeyed calls that may have run in a lost sandbox as unknown, and runs the others again', async () => {
    let unknown = 0;
    for (let prefix = firstOfRun; prefix < log.length; prefix += 1) {
      const { sandbox, session } = await resumeFrom(prefix, { incarnation: 'two', results: new Map() });
      const epochAtTakeover = log[prefix - 1]?.head.epoch ?? 0;
      for await (const { type, payload } of session.events()) {
        if (type !== 'tool_result' || payload.outcome !== 'unknown') continue;
        unknown += 1;
        expect(payload.tool_id).toBe('shell');
        expect(sandbox.ran).not.toContain(payload.tool_call_id);
      }
      const shellCallsOfOthers = sandbox.ran.filter((callId) => Number(callId.split('.')[1]) <= epochAtTakeover);
      expect(shellCallsOfOthers.filter((callId) => isCommittedShell(callId, prefix))).toEqual([]);
    }
    expect(unknown).toBeGreaterThan(0);
  });

  /** A shell call of the first owner that it may have sent: its sandbox was committed by then. */
  function isCommittedShell(callId: string, prefix: number): boolean {
    const before = log.slice(0, prefix);
    const isShell = before.some(({ events }) =>
      events.some(({ frame }) => frame.includes(`"${callId}"`) && frame.includes('"tool_id":"shell"')),
    );
    return isShell && before.at(-1)?.head.sandbox !== null;
  }

  it('runs no unkeyed call twice, however often owners and sandboxes are lost', async () => {
    const ranBefore = new Set(whole.sandbox.ran);
    for (let first = firstOfRun; first < log.length; first += 2) {
      const second = await resumeFrom(first, { incarnation: 'two', results: new Map() });
      const secondLog = await documentsOf(second.store, sessionId);
      for (let prefix = first + 2; prefix < secondLog.length; prefix += 1) {
        const third = world({ incarnation: 'three', results: new Map() }, secondLog.slice(0, prefix));
        const session = await third.open(sessionId);
        expect(await session.resume()).toMatchObject({ doneReason: 'completed', text: FINAL });
        const types = await typesOf(session);
        expect(types.filter((type) => type === 'completion')).toHaveLength(1);
        if (secondLog[prefix - 1]?.head.sandbox === null) continue;
        const shells = shellCalls(secondLog);
        const again = third.sandbox.ran.filter(
          (callId) => shells.has(callId) && (ranBefore.has(callId) || second.sandbox.ran.includes(callId)),
        );
        expect({ first, prefix, again }).toEqual({ first, prefix, again: [] });
      }
    }
  });

  function shellCalls(documents: readonly CommitDocument[]): Set<string> {
    const calls = documents
      .flatMap(({ events }) => events.map(({ frame }) => JSON.parse(frame) as StoredEvent))
      .flatMap((event) => (event.type === 'tool_call' && event.payload.tool_id === 'shell' ? [event] : []));
    return new Set(calls.map(({ payload }) => payload.tool_call_id));
  }

  it('refuses the older owner as soon as another one has taken over', async () => {
    const next = world({ incarnation: 'one', results: new Map() }, log.slice(0, firstOfRun));
    const older = await next.open(sessionId);
    const resuming = older.resume();
    const engine = createEngine({
      clock: new VirtualClock(),
      ids: new SequenceIds(),
      store: next.store,
      blobs: next.blobs,
      model: scriptedModel(answers),
      tools: [next.sandbox],
    });
    const younger = await engine.openSession(sessionId);
    const [first, second] = await Promise.allSettled([resuming, younger.resume()]);
    const outcomes = [first, second].map((one) =>
      one.status === 'fulfilled' ? one.value?.doneReason : isMargayError(one.reason) && one.reason.reason,
    );
    expect(outcomes.filter((outcome) => outcome === 'completed')).toHaveLength(1);
    const types = await typesOf(older);
    expect(types.filter((type) => type === 'completion')).toHaveLength(1);
  });
});

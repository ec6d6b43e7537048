import { ToolDescriptor, type EffectClass, type executorPb, type RunGrant } from '@margay/contracts';
import { createLogger } from '@margay/platform';
import type { GuardStore } from './guard-store';
import { MemoryGuardStore } from './memory-guard-store';
import { OutsideCalls } from './outside-calls';
import type { Attempt, AttemptEnd, OutsideTool } from './outside-tool';

/** Long enough for a busy machine: a process of which this one does not hear for so long counts as gone. */
const LOST_MS = 1_000;
const logger = createLogger({ level: 'off' });
const never = new AbortController().signal;

/** An effect that answers when it is told to, and counts what was really sent. */
class Effect implements OutsideTool {
  readonly sent: Attempt[] = [];
  readonly timeoutMs = 30_000;
  readonly descriptor: ToolDescriptor;
  private answers: ((end: AttemptEnd) => void)[] = [];
  private waiting: (() => void)[] = [];

  constructor(effect: EffectClass) {
    this.descriptor = ToolDescriptor.parse({
      tool_id: effect,
      name: effect,
      description: effect,
      schema: {},
      operation: 'set',
      effect,
      placement: 'outside',
    });
  }

  attempt(attempt: Attempt): Promise<AttemptEnd> {
    this.sent.push(attempt);
    for (const wake of this.waiting) wake();
    return new Promise((resolve) => {
      this.answers.push(resolve);
      attempt.signal.addEventListener('abort', () => resolve({ kind: 'lost', error: 'aborted' }), { once: true });
    });
  }

  /** Resolves once so many attempts were sent. */
  async sentTimes(count: number): Promise<void> {
    while (this.sent.length < count) await new Promise<void>((resolve) => this.waiting.push(resolve));
  }

  answer(end: AttemptEnd = { kind: 'answered', status: 'ok', result: 'done' }): void {
    this.answers.shift()?.(end);
  }
}

/** The store as a process sees it that may die: then nothing of it arrives any more. */
function mortal(store: GuardStore): { store: GuardStore; die: () => void } {
  let isDead = false;
  const proxy = new Proxy(store, {
    get: (target, name, receiver) => {
      const value: unknown = Reflect.get(target, name, receiver);
      if (typeof value !== 'function') return value;
      return (...given: unknown[]) =>
        isDead ? new Promise(() => undefined) : (value as (...values: unknown[]) => unknown).apply(target, given);
    },
  });
  return { store: proxy, die: () => (isDead = true) };
}

let store: MemoryGuardStore;
let effects: Record<EffectClass, Effect>;
let processes: OutsideCalls[];

beforeEach(() => {
  store = new MemoryGuardStore();
  effects = { pure: new Effect('pure'), keyed: new Effect('keyed'), unkeyed: new Effect('unkeyed') };
  processes = [];
});
afterEach(async () => {
  for (const effect of Object.values(effects)) for (const _ of effect.sent) effect.answer();
  await Promise.all(processes.map((process) => process.close()));
});

function startProcess(on: GuardStore = store): OutsideCalls {
  const options = { tools: Object.values(effects), logger, generation: 0, lostMs: LOST_MS };
  const started = new OutsideCalls({ store: on, ...options });
  if (on === store) processes.push(started);
  return started;
}

const grantOf = (epoch = 1, more: Partial<RunGrant> = {}): RunGrant => ({
  v: 1,
  tenantId: 't1',
  sessionId: 's1',
  runId: 'r1',
  epoch,
  storeGeneration: 0,
  principal: 'user:ada',
  workspace: { kind: 'own' },
  ...more,
});

interface Heard {
  reattached?: boolean;
  status?: string;
  result?: unknown;
}

async function call(
  process: OutsideCalls,
  toolId: EffectClass,
  { callId = 's1.1.1.0', argsJson = '{}', grant = grantOf(), signal = never } = {},
): Promise<Heard> {
  const request: executorPb.ExecuteRequest = {
    callId,
    toolId,
    argsJson,
    timeoutMs: 0,
    fromOffset: 0,
    incarnation: 'none',
  };
  const heard: Heard = {};
  for await (const { message } of process.execute(request, grant, signal)) {
    if (message?.$case === 'started') heard.reattached = message.value.reattached;
    if (message?.$case !== 'finished') continue;
    heard.status = message.value.status;
    heard.result = JSON.parse(message.value.resultJson);
  }
  return heard;
}

it('makes a call once and gives its stored result to whoever asks again', async () => {
  const process = startProcess();
  const first = call(process, 'unkeyed');
  await effects.unkeyed.sentTimes(1);
  const second = call(process, 'unkeyed');
  effects.unkeyed.answer();
  expect(await first).toEqual({ reattached: false, status: 'ok', result: 'done' });
  expect(await second).toEqual({ reattached: true, status: 'ok', result: 'done' });
  expect(await call(startProcess(), 'unkeyed', { grant: grantOf(2) })).toMatchObject({
    reattached: true,
    status: 'ok',
  });
  expect(effects.unkeyed.sent).toHaveLength(1);
});

it('makes one call of those that come at once, over all processes', async () => {
  const both = [startProcess(), startProcess()];
  const calls = Array.from({ length: 10 }, (_, index) => call(both[index % 2] as OutsideCalls, 'unkeyed'));
  await effects.unkeyed.sentTimes(1);
  effects.unkeyed.answer();
  expect(new Set((await Promise.all(calls)).map(({ status }) => status))).toEqual(new Set(['ok']));
  expect(effects.unkeyed.sent).toHaveLength(1);
});

it('refuses other arguments, another session and another tenant under the same id', async () => {
  const process = startProcess();
  const first = call(process, 'keyed');
  await effects.keyed.sentTimes(1);
  effects.keyed.answer();
  await first;
  await expect(call(process, 'keyed', { argsJson: '{"a":1}' })).rejects.toMatchObject({ reason: 'call_args_mismatch' });
  const foreign = { grant: grantOf(1, { sessionId: 's2' }) };
  await expect(call(process, 'keyed', foreign)).rejects.toMatchObject({ reason: 'foreign_call' });
  const ofTenant = { grant: grantOf(1, { tenantId: 't2' }) };
  await expect(call(process, 'keyed', ofTenant)).rejects.toMatchObject({ reason: 'foreign_call' });
});

it('stores the result although its caller is gone', async () => {
  const process = startProcess();
  const caller = new AbortController();
  const left = call(process, 'unkeyed', { signal: caller.signal });
  await effects.unkeyed.sentTimes(1);
  caller.abort(new Error('the runner is gone'));
  await expect(left).rejects.toThrow('the runner is gone');
  effects.unkeyed.answer();
  expect(await call(process, 'unkeyed', { grant: grantOf(2) })).toMatchObject({ status: 'ok', result: 'done' });
  expect(effects.unkeyed.sent).toHaveLength(1);
});

describe('where another process makes the call', () => {
  it('waits as long as that lives, and hears its result', async () => {
    const first = startProcess();
    const left = call(first, 'unkeyed');
    await effects.unkeyed.sentTimes(1);
    const waiting = call(startProcess(), 'unkeyed', { grant: grantOf(2) });
    const beats = jest.spyOn(store, 'beat');
    while (beats.mock.calls.length < 12) await new Promise((resolve) => setTimeout(resolve, 1)); // over 2 x LOST_MS
    effects.unkeyed.answer();
    expect(await waiting).toEqual({ reattached: true, status: 'ok', result: 'done' });
    await left.catch(() => undefined); // cut by the new owner, or answered before
  });

  it.each([
    ['pure', 2, { status: 'ok', result: 'again' }],
    ['keyed', 2, { status: 'ok', result: 'again' }],
    ['unkeyed', 1, { status: 'unknown' }],
  ] as const)('decides about a %s call when that process is gone', async (effect, times, expected) => {
    const { store: seen, die } = mortal(store);
    void call(startProcess(seen), effect).catch(() => undefined);
    await effects[effect].sentTimes(1);
    die();
    const after = call(startProcess(), effect, { grant: grantOf(2) });
    if (times === 2) {
      await effects[effect].sentTimes(2);
      effects[effect].answer(); // of the dead process: nobody hears it
      effects[effect].answer({ kind: 'answered', status: 'ok', result: 'again' });
    }
    expect(await after).toMatchObject(expected);
    expect(effects[effect].sent.map(({ callId }) => callId)).toEqual(Array.from({ length: times }, () => 's1.1.1.0'));
    expect((await store.find('s1.1.1.0'))?.state).toBe('done');
  });

  it('lets one decide where several wait', async () => {
    const { store: seen, die } = mortal(store);
    void call(startProcess(seen), 'keyed').catch(() => undefined);
    await effects.keyed.sentTimes(1);
    die();
    const waiting = [startProcess(), startProcess()].map((process) => call(process, 'keyed', { grant: grantOf(2) }));
    await effects.keyed.sentTimes(2);
    effects.keyed.answer();
    effects.keyed.answer();
    expect(await Promise.all(waiting)).toMatchObject([{ status: 'ok' }, { status: 'ok' }]);
    expect(effects.keyed.sent).toHaveLength(2);
  });

  it('does not let a process that was taken for gone change what was decided', async () => {
    const sleeping = startProcess();
    jest.spyOn(store, 'beat').mockResolvedValue([]); // it stands still: nothing is confirmed
    const asleep = call(sleeping, 'unkeyed');
    await effects.unkeyed.sentTimes(1);
    expect(await call(startProcess(), 'unkeyed')).toMatchObject({ status: 'unknown' });
    effects.unkeyed.answer();
    expect(await asleep).toMatchObject({ status: 'unknown' });
  });

  it('does not repeat a keyed call whose end was asked for', async () => {
    const { store: seen, die } = mortal(store);
    void call(startProcess(seen), 'keyed').catch(() => undefined);
    await effects.keyed.sentTimes(1);
    die();
    const other = startProcess();
    expect(await other.cancel('t1', 's1', 's1.1.1.0')).toBe('cancelled');
    expect(await call(other, 'keyed', { grant: grantOf(2) })).toMatchObject({ status: 'unknown' });
    expect(effects.keyed.sent).toHaveLength(1);
  });
});

describe('fenced epochs', () => {
  it('are refused from the fence on, and from a later owner on', async () => {
    const process = startProcess();
    await process.fence('t1', 's1', { epoch: 5, kill: false });
    await expect(call(process, 'unkeyed', { grant: grantOf(4) })).rejects.toMatchObject({ reason: 'stale_epoch' });
    expect(effects.unkeyed.sent).toEqual([]);
    expect(await store.find('s1.1.1.0')).toBeUndefined();
    const later = call(startProcess(), 'pure', { callId: 's1.6.1.0', grant: grantOf(6) });
    await effects.pure.sentTimes(1);
    effects.pure.answer();
    await later;
    await expect(call(process, 'unkeyed', { grant: grantOf(5) })).rejects.toMatchObject({ reason: 'stale_epoch' });
  });

  it('are told so where they wait for a call of another process', async () => {
    const first = call(startProcess(), 'keyed').catch((error: { reason: string }) => error.reason);
    await effects.keyed.sentTimes(1);
    const beats = jest.spyOn(store, 'find');
    const waiting = startProcess();
    const waits = call(waiting, 'keyed', { grant: grantOf(2) }).catch((error: { reason: string }) => error.reason);
    while (beats.mock.calls.length < 3) await new Promise((resolve) => setTimeout(resolve, 1));
    await waiting.fence('t1', 's1', { epoch: 3, kill: false });
    expect(await waits).toBe('stale_epoch');
    effects.keyed.answer();
    expect(await first).toMatchObject({ status: 'ok' });
  });

  it('send nothing where the fence comes between the row and the sending', async () => {
    const process = startProcess();
    const insert = store.insert.bind(store);
    jest.spyOn(store, 'insert').mockImplementationOnce(async (...given) => {
      const isNew = await insert(...given);
      await startProcess().fence('t1', 's1', { epoch: 9, kill: true });
      return isNew;
    });
    await expect(call(process, 'unkeyed')).rejects.toMatchObject({ reason: 'stale_epoch' });
    expect(effects.unkeyed.sent).toEqual([]);
    expect(await store.find('s1.1.1.0')).toBeUndefined();
  });

  it('are left running by a takeover and ended by a cancel, also in another process', async () => {
    const [here, there] = [startProcess(), startProcess()];
    const unkeyed = call(here, 'unkeyed').catch((error: { reason: string }) => error.reason);
    const pure = call(there, 'pure', { callId: 's1.1.1.1' }).catch((error: { reason: string }) => error.reason);
    await Promise.all([effects.unkeyed.sentTimes(1), effects.pure.sentTimes(1)]);
    await here.fence('t1', 's1', { epoch: 2, kill: false });
    expect(await unkeyed).toBe('stale_epoch');
    expect(effects.unkeyed.sent[0]?.signal.aborted).toBe(false);
    await here.fence('t1', 's1', { epoch: 3, kill: true });
    expect(effects.unkeyed.sent[0]?.signal.aborted).toBe(true);
    expect((await store.find('s1.1.1.0'))?.result).toMatchObject({ status: 'unknown' });
    expect(await pure).toMatchObject({ status: 'cancelled' });
  });

  it('of other sessions and tenants go on', async () => {
    const process = startProcess();
    const going = call(process, 'keyed');
    await effects.keyed.sentTimes(1);
    await process.fence('t1', 's2', { epoch: 9, kill: true });
    await process.fence('t2', 's1', { epoch: 9, kill: true });
    effects.keyed.answer();
    expect(await going).toMatchObject({ status: 'ok' });
  });
});

describe('cancel', () => {
  it.each([
    ['pure', 'cancelled'],
    ['keyed', 'unknown'],
    ['unkeyed', 'unknown'],
  ] as const)('ends a %s call that was sent as %s', async (effect, status) => {
    const process = startProcess();
    const running = call(process, effect);
    await effects[effect].sentTimes(1);
    expect(await process.cancel('t1', 's1', 's1.1.1.0')).toBe('cancelled');
    expect(await running).toMatchObject({ status });
    expect(await process.cancel('t1', 's1', 's1.1.1.0')).toBe('finished');
  });

  it('reaches the process that makes the call', async () => {
    const running = call(startProcess(), 'pure');
    await effects.pure.sentTimes(1);
    expect(await startProcess().cancel('t1', 's1', 's1.1.1.0')).toBe('cancelled');
    expect(await running).toMatchObject({ status: 'cancelled' });
  });

  it('knows only calls of its own session', async () => {
    const process = startProcess();
    const running = call(process, 'pure');
    await effects.pure.sentTimes(1);
    expect(await process.cancel('t2', 's1', 's1.1.1.0')).toBeUndefined();
    expect(await process.cancel('t1', 's2', 's1.1.1.0')).toBeUndefined();
    expect(await process.cancel('t1', 's1', 's1.9.9.9')).toBeUndefined();
    effects.pure.answer();
    expect(await running).toMatchObject({ status: 'ok' });
  });
});

it('starts a call whose own row it finds without having begun it: the answer to the insert was lost', async () => {
  const insert = store.insert.bind(store);
  jest.spyOn(store, 'insert').mockImplementationOnce(async (...given) => {
    await insert(...given);
    throw new Error('no answer');
  });
  const process = startProcess();
  await expect(call(process, 'unkeyed')).rejects.toThrow('no answer');
  const again = call(process, 'unkeyed');
  await effects.unkeyed.sentTimes(1);
  effects.unkeyed.answer();
  expect(await again).toMatchObject({ reattached: false, status: 'ok' });
});

it('stores a result when the store is back', async () => {
  const process = startProcess();
  const running = call(process, 'unkeyed');
  await effects.unkeyed.sentTimes(1);
  jest.spyOn(store, 'finish').mockRejectedValueOnce(new Error('away')).mockRejectedValueOnce(new Error('away'));
  effects.unkeyed.answer();
  expect(await running).toMatchObject({ status: 'ok' });
  expect((await store.find('s1.1.1.0'))?.state).toBe('done');
});

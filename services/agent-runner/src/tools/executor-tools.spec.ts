import { setTimeout as sleep } from 'node:timers/promises';
import { errorOf, InvalidArgumentError, UnavailableError } from '@margay/errors';
import { RunStopped, type ToolInvocation, type Tools } from '@margay/engine';
import { createLogger } from '@margay/platform';
import { FakeExecutor, finished, gone, started, wrongIncarnation, type Attempt } from '../spec/fake-executor';
import { ExecutorTools } from './executor-tools';

const never = new Promise<never>(() => undefined);
const call: ToolInvocation = {
  callId: 's.2.1.0',
  toolId: 'aider_shell_tool',
  args: { command: 'ls' },
  effect: 'unkeyed',
  timeoutMs: 1_000,
  agentId: 'root',
  idempotencyKey: 's.2.1.0',
};

let executor: FakeExecutor;
let fenced: number;

beforeEach(() => {
  executor = new FakeExecutor();
  fenced = 0;
});

interface Given extends Partial<Parameters<Tools['execute']>[1]> {
  attachments?: ConstructorParameters<typeof ExecutorTools>[0]['attachments'];
  effect?: ToolInvocation['effect'];
}

function execute(attempts: Attempt[], { effect = call.effect, attachments, ...options }: Given = {}) {
  executor.attempts = attempts;
  const tools = new ExecutorTools({
    client: executor.client,
    grant: () => 'grant',
    descriptors: () => Promise.resolve([]),
    onFenced: () => (fenced += 1),
    ...(attachments ? { attachments } : {}),
    logger: createLogger({ level: 'off' }),
  });
  const { signal } = new AbortController();
  return tools.execute({ ...call, effect }, { incarnation: 'one', signal, ...options });
}

/** Aborts once the call is under way. */
async function abortLater(controller: AbortController, reason: Error): Promise<void> {
  while (executor.open === 0) await sleep(1);
  controller.abort(reason);
}

it('gives the outcome with the sandbox in which it ran', async () => {
  const outcome = await execute([[started('one'), finished({ kind: 'shell', exit_code: 0 })]]);
  expect(outcome).toMatchObject({ status: 'ok', result: { kind: 'shell', exit_code: 0 }, incarnation: 'one' });
  expect(executor.requests).toEqual([
    expect.objectContaining({ callId: 's.2.1.0', argsJson: '{"command":"ls"}', incarnation: 'one', fromOffset: 0 }),
  ]);
});

it.each([
  ['killed', 'processes', { error: 'its sandbox had too many processes (processes). said' }],
  ['killed', 'new word', { error: 'said' }],
  ['unknown', 'restart', { error: 'sandbox_lost' }],
  ['error', 'disk', { error: 'said' }],
])('tells which limit ended a call: %s, %s', async (status, limitHit, told) => {
  expect(await execute([[started(), finished('said', status, limitHit)]])).toMatchObject({ status, ...told });
});

it('tells which limit a command met that came to its end', async () => {
  const result = { kind: 'shell', exit_code: 152 };
  const { result: met } = (await execute([[started(), finished(result, 'ok', 'cpu')]])) as { result: unknown };
  expect(met).toEqual({ ...result, limit_hit: 'cpu' });
  const { result: late } = (await execute([[started(), finished(result, 'ok', 'wall_time')]])) as { result: unknown };
  expect(late).toEqual(result);
});

it('hands on what happened to the workspace, and nothing that it does not know', async () => {
  const notice = (type: string, payload: object): Attempt[number] => ({
    $case: 'notice',
    value: { type, payloadJson: JSON.stringify(payload) },
  });
  const restored = { snapshot_id: 'ws/3', age_seconds: 4 };
  const told: unknown[] = [];
  const script = [
    notice('workspace_restored', restored),
    notice('completion', { done: true }),
    started(),
    finished('x'),
  ];
  await execute([script], { onNotice: (event) => void told.push(event) });
  expect(told).toEqual([{ type: 'workspace_restored', payload: restored }]);
});

it('sends the same call again after a lost connection, and attaches', async () => {
  const waits: string[] = [];
  const listeners = { onWaiting: () => void waits.push('waiting'), onStarted: () => void waits.push('started') };
  const outcome = await execute([[gone()], [started(), gone()], [started('one', true), finished('done')]], listeners);
  expect(outcome).toMatchObject({ status: 'ok', result: 'done' });
  expect(new Set(executor.requests.map((request) => JSON.stringify(request))).size).toBe(1);
  expect(waits).toEqual(['waiting', 'started', 'waiting', 'started']);
  expect(executor.cancelled).toEqual([]);
});

it('gives up a sandbox that does not start, in its words; nothing has run', async () => {
  const broken = () => new UnavailableError('sandbox_start_failed', 'The sandbox ended at its start.');
  const outcome = await execute([[broken()], [broken()], [broken()], [started(), finished('never asked for')]]);
  expect(outcome).toMatchObject({ status: 'error', error: 'The sandbox ended at its start.' });
  expect(executor.requests).toHaveLength(3);
});

it('stops the run where the sandbox has seen a later owner', async () => {
  const stale = errorOf('FAILED_PRECONDITION', 'stale_epoch', 'a later owner was here');
  expect(await execute([[stale]])).toMatchObject({ status: 'cancelled' });
  expect(fenced).toBe(1);
});

it('says of a refusal by another sandbox whether an earlier attempt may have run', async () => {
  expect(await execute([[wrongIncarnation('two')]])).toEqual({ status: 'wrong_incarnation', incarnation: 'two' });
  expect(await execute([[gone()], [wrongIncarnation('two')]])).toMatchObject({ mayHaveRun: true });
  expect(await execute([[started('one'), wrongIncarnation('two')]])).toMatchObject({ mayHaveRun: true });
});

it('does not call a failure what may have taken effect', async () => {
  const broken = errorOf('INTERNAL', 'internal', 'broken');
  const lost = new UnavailableError('sandbox_unavailable', 'lost again and again');
  expect(await execute([[started(), lost]])).toMatchObject({ status: 'unknown', error: 'lost again and again' });
  expect(await execute([[broken]])).toMatchObject({ status: 'unknown' });
  expect(await execute([[started()]])).toMatchObject({ status: 'unknown' });
  expect(await execute([[lost]])).toMatchObject({ status: 'error' });
  expect(await execute([[started(), lost]], { effect: 'pure' })).toMatchObject({ status: 'error' });
  expect(await execute([[new InvalidArgumentError('unknown_tool', 'no')]])).toMatchObject({ status: 'error' });
});

describe('when the end of the call is asked for', () => {
  it.each([new Error('interrupted by the user'), new RunStopped('canceled')])(
    'asks the sandbox to end it and waits for the outcome: %s',
    async (reason) => {
      const controller = new AbortController();
      const { promise: ended, resolve: end } = Promise.withResolvers<void>();
      const outcome = execute([[started(), ended, finished('so far', 'cancelled')]], { signal: controller.signal });
      await abortLater(controller, reason);
      expect(executor.cancelled).toEqual(['s.2.1.0']);
      await sleep(10);
      expect(executor.open).toBe(1);
      end();
      expect(await outcome).toMatchObject({ status: 'cancelled', result: 'so far' });
    },
  );

  it.each(['drained', 'fenced'] as const)('leaves the call running where the run is %s', async (cause) => {
    const controller = new AbortController();
    const outcome = execute([[started(), never]], { signal: controller.signal });
    await abortLater(controller, new RunStopped(cause));
    expect(await outcome).toMatchObject({ status: 'cancelled' });
    while (executor.open > 0) await sleep(1);
    expect(executor.cancelled).toEqual([]);
  });

  it('never starts it afterwards', async () => {
    const controller = new AbortController();
    const outcome = execute([[gone()], [started(), finished('too late')]], {
      signal: controller.signal,
      onWaiting: () => controller.abort(new Error('timed out')),
    });
    expect(await outcome).toEqual({ status: 'unknown', result: null });
    expect(executor.requests).toHaveLength(1);
  });

  it('sends nothing where it was asked for before', async () => {
    expect(await execute([], { signal: AbortSignal.abort(new Error('over')) })).toMatchObject({ status: 'cancelled' });
    expect(executor.requests).toEqual([]);
  });
});

it('leaves no listener behind, however often it tries', async () => {
  const { signal } = new AbortController();
  const add = jest.spyOn(signal, 'addEventListener');
  const remove = jest.spyOn(signal, 'removeEventListener');
  await execute([[gone()], [gone()], [gone()], [finished('')]], { signal });
  const names = (spy: { mock: { calls: unknown[][] } }) => spy.mock.calls.filter(([name]) => name === 'abort').length;
  expect(names(add)).toBeGreaterThan(3);
  expect(names(remove)).toBeGreaterThanOrEqual(5);
});

describe('where people attached files', () => {
  const forget = jest.fn();

  beforeEach(() => forget.mockClear());

  it('a call is sent once they are there, and again where they could not be brought at first; nothing has run', async () => {
    const failures = [gone(), gone()];
    const place = jest.fn(async () => {
      const failure = failures.shift();
      if (failure) throw failure;
      expect(executor.requests).toEqual([]);
    });
    const outcome = await execute([[started(), finished('done')]], { attachments: { place, forget } });
    expect(outcome).toMatchObject({ status: 'ok' });
    expect(place).toHaveBeenCalledTimes(3);
    expect(executor.requests).toHaveLength(1);
  });

  it('a call whose files cannot be brought has failed, and surely not run', async () => {
    const place = () => Promise.reject(errorOf('INTERNAL', 'attachment_broken', 'it does not arrive whole'));
    const outcome = await execute([], { attachments: { place, forget } });
    expect(outcome).toMatchObject({ status: 'error', error: 'it does not arrive whole' });
    expect(executor.requests).toEqual([]);
  });

  it('a cancel does not wait for them', async () => {
    const controller = new AbortController();
    const outcome = execute([], { attachments: { place: () => never, forget }, signal: controller.signal });
    controller.abort(new RunStopped('canceled'));
    expect(await outcome).toMatchObject({ status: 'cancelled' });
    expect(executor.requests).toEqual([]);
  });

  it('they are brought anew into another sandbox', async () => {
    await execute([[wrongIncarnation('two')]], { attachments: { place: () => Promise.resolve(), forget } });
    expect(forget).toHaveBeenCalledTimes(1);
  });
});

import { ToolDescriptor, type EffectClass } from '@margay/contracts';
import type { Attempt, AttemptEnd, OutsideTool } from './outside-tool';
import { CallStopped, perform } from './perform';

const never = new AbortController().signal;
const ok: AttemptEnd = { kind: 'answered', status: 'ok', result: 'done' };
const passing: AttemptEnd = { kind: 'answered', status: 'error', result: 'the server answered 503', isPassing: true };
const behind: AttemptEnd = { ...passing, result: 'the server answered 504', isInDoubt: true };
const lost: AttemptEnd = { kind: 'lost', error: 'lost' };
const notSent: AttemptEnd = { kind: 'not_sent', error: 'not reached' };

beforeEach(() => void jest.useFakeTimers({ doNotFake: ['performance'] }));
afterEach(() => void jest.useRealTimers());

/** The last end is repeated; undefined = never answers until it is aborted. */
function toolOf(effect: EffectClass, ends: (AttemptEnd | undefined)[]): OutsideTool & { attempts: Attempt[] } {
  const attempts: Attempt[] = [];
  const descriptor = ToolDescriptor.parse({
    tool_id: 'x',
    name: 'x',
    description: 'x',
    schema: {},
    operation: 'set',
    effect,
  });
  return {
    descriptor,
    timeoutMs: 20_000,
    attempts,
    attempt: (attempt) => {
      attempts.push(attempt);
      const end = ends[Math.min(attempts.length, ends.length) - 1];
      if (end) return Promise.resolve(end);
      return new Promise((resolve) => attempt.signal.addEventListener('abort', () => resolve(lost), { once: true }));
    },
  };
}

async function outcomeOf(effect: EffectClass, ends: (AttemptEnd | undefined)[], stop: AbortSignal = never) {
  const tool = toolOf(effect, ends);
  const performing = perform(tool, { callId: 'c', tenantId: 't1', argsJson: '{}' }, stop, () => Promise.resolve());
  let isOver = false;
  void performing.finally(() => (isOver = true));
  while (!isOver) await jest.advanceTimersByTimeAsync(250);
  const outcome = await performing;
  return { outcome: typeof outcome === 'string' ? outcome : outcome.status, times: tool.attempts.length };
}

it.each([
  ['unkeyed', [ok], 'ok', 1],
  ['unkeyed', [notSent, ok], 'error', 1],
  ['unkeyed', [lost, ok], 'unknown', 1],
  ['unkeyed', [passing, ok], 'error', 1],
  ['unkeyed', [behind, ok], 'unknown', 1],
  ['keyed', [behind], 'unknown', 4],
  ['keyed', [behind, ok], 'ok', 2],
  ['pure', [behind], 'error', 4],
  ['keyed', [notSent, lost, passing, ok], 'ok', 4],
  ['keyed', [lost], 'unknown', 4],
  ['keyed', [notSent], 'error', 4],
  ['keyed', [lost, notSent, notSent, passing], 'unknown', 4],
  ['keyed', [passing], 'error', 4],
  ['pure', [lost, ok], 'ok', 2],
  ['pure', [lost], 'error', 4],
] as const)('ends a %s call after %j as %s, by %i attempts', async (effect, ends, outcome, times) => {
  expect(await outcomeOf(effect, [...ends])).toEqual({ outcome, times });
});

it.each([
  ['unkeyed', 'unknown'],
  ['keyed', 'unknown'],
  ['pure', 'timed_out'],
] as const)('ends a %s call that is never answered as %s', async (effect, outcome) => {
  expect(await outcomeOf(effect, [undefined])).toEqual({ outcome, times: 1 });
});

it.each([
  ['unkeyed', 'cancelled', 'unknown'],
  ['keyed', 'killed', 'unknown'],
  ['pure', 'cancelled', 'cancelled'],
  ['unkeyed', 'shutdown', 'unknown'],
  ['keyed', 'shutdown', 'repeatable'],
  ['pure', 'shutdown', 'repeatable'],
] as const)('ends a %s call that is %s while it waits as %s', async (effect, why, outcome) => {
  const stop = new AbortController();
  setTimeout(() => stop.abort(new CallStopped(why)), 1_000);
  expect(await outcomeOf(effect, [undefined], stop.signal)).toEqual({ outcome, times: 1 });
});

it('says of a call that never left the process that it was cancelled, or leaves it to others', async () => {
  const stop = new AbortController();
  stop.abort(new CallStopped('cancelled'));
  expect(await outcomeOf('unkeyed', [notSent], stop.signal)).toMatchObject({ outcome: 'cancelled' });
  const shutdown = new AbortController();
  shutdown.abort(new CallStopped('shutdown'));
  expect(await outcomeOf('unkeyed', [notSent], shutdown.signal)).toMatchObject({ outcome: 'unsent' });
});

it('counts a mistake of the tool as sent', async () => {
  const tool = { ...toolOf('unkeyed', [ok]), attempt: () => Promise.reject(new Error('a mistake')) };
  expect(await perform(tool, { callId: 'c', tenantId: 't1', argsJson: '{}' }, never)).toMatchObject({
    status: 'unknown',
  });
});

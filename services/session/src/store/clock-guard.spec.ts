import { UnavailableError } from '@margay/errors';
import { createLogger } from '@margay/platform';
import { ClockGuard } from './clock-guard';

const logger = createLogger({ level: 'off' });
const skew = new UnavailableError('clock_skew', 'off');
let outcomes: (Error | undefined)[];
let offs: number;
let guard: ClockGuard;

beforeEach(() => {
  jest.useFakeTimers();
  offs = 0;
  outcomes = [];
  guard = new ClockGuard({
    check: async () => {
      const outcome = outcomes.length > 1 ? outcomes.shift() : outcomes[0];
      if (outcome) throw outcome;
    },
    onOff: () => (offs += 1),
    logger,
  });
});
afterEach(() => {
  guard.stop();
  jest.useRealTimers();
});

const nextLook = () => jest.advanceTimersByTimeAsync(1_000);

it('serves nobody from the start where the clock is off, until it is right', async () => {
  outcomes = [skew, skew, undefined];
  await guard.start();
  expect(guard.refusal).toBe(skew);
  await nextLook();
  expect([guard.refusal, offs]).toEqual([skew, 1]);
  await nextLook();
  expect(guard.refusal).toBeUndefined();
});

it('sends everybody away once a clock jumps, each time it does', async () => {
  outcomes = [undefined, skew, undefined, skew];
  await guard.start();
  expect([guard.refusal, offs]).toEqual([undefined, 0]);
  for (const expected of [1, 1, 2]) {
    await nextLook();
    expect(offs).toBe(expected);
  }
});

it('does not take an outage of the store for a clock that is off, nor for one that is right', async () => {
  const outage = new UnavailableError('store_unavailable', 'away');
  outcomes = [outage, skew, outage];
  await guard.start();
  expect(guard.refusal).toBeUndefined();
  await nextLook();
  await nextLook();
  expect([guard.refusal, offs]).toEqual([skew, 1]);
});

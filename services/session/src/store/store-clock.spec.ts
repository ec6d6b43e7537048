import { checkClock } from './store-clock';

/** A store whose clock is off by this, and a question that takes so long. */
function check(offMs: number, tookMs = 10): Promise<void> {
  let nowMs = 1_000_000;
  const db = {
    command: async () => {
      nowMs += tookMs;
      return { localTime: new Date(nowMs - tookMs / 2 + offMs) };
    },
  };
  return checkClock(db, () => nowMs);
}

describe('the clock of this machine', () => {
  it.each([0, 1_900, -1_900])('may be %d ms off the store', (offMs) => expect(check(offMs)).resolves.toBeUndefined());

  it.each([2_100, -2_100, 3_600_000])('may not be %d ms off the store', (offMs) =>
    expect(check(offMs)).rejects.toMatchObject({ reason: 'clock_skew' }),
  );

  it('is not blamed for a slow answer', () => expect(check(1_900, 8_000)).resolves.toBeUndefined());

  it('is not judged where the store names no time', () =>
    expect(checkClock({ command: async () => ({}) })).resolves.toBeUndefined());
});

import { poolTarget } from './pool-target';
import { QuotaPause } from './quota-pause';
import type { SandboxRow } from './sandbox-row';

const NOW = Date.parse('2031-01-01T00:00:00Z');
const claimed = (secondsAgo: number, startSeconds = 2): SandboxRow => {
  const claimedAt = new Date(NOW - secondsAgo * 1_000);
  return { claimedAt, startedAt: claimedAt, readyAt: new Date(+claimedAt + startSeconds * 1_000) } as SandboxRow;
};
const warm = { min: 2, max: 20 };

describe('how many sandboxes should wait', () => {
  it('is the least the class says while nothing is claimed', () => {
    expect(poolTarget([], { warm }, NOW)).toBe(2);
    expect(poolTarget([], { warm: { min: 0, max: 0 } }, NOW)).toBe(0);
  });

  it('is what is claimed while one starts, and one more', () => {
    const steady = Array.from({ length: 1_200 }, (_, n) => claimed(n / 2)); // two a second
    expect(poolTarget(steady, { warm }, NOW)).toBe(5);
    const slow = Array.from({ length: 1_200 }, (_, n) => claimed(n / 2, 4));
    expect(poolTarget(slow, { warm }, NOW)).toBe(9);
  });

  it('is never more than the class says', () => {
    const storm = Array.from({ length: 5_000 }, (_, n) => claimed(n / 10, 30));
    expect(poolTarget(storm, { warm }, NOW)).toBe(20);
  });
});

describe('after the quota refused a pod', () => {
  it('none is asked for in that namespace, longer each time, until one was made', () => {
    let now = 0;
    const pause = new QuotaPause(() => now);
    expect(pause.refusalIn('full')).toBeUndefined();
    const waits = [];
    for (let turn = 0; turn < 6; turn += 1) {
      const { retryAfterMs = 0 } = pause.begin('full', 'exceeded quota');
      waits.push(retryAfterMs);
      expect(pause.refusalIn('full')).toEqual({ reason: 'quota', message: 'exceeded quota', retryAfterMs });
      expect(pause.refusalIn('other')).toBeUndefined();
      now += retryAfterMs;
      expect(pause.refusalIn('full')).toBeUndefined();
    }
    expect(waits).toEqual([5_000, 10_000, 20_000, 40_000, 60_000, 60_000]);
    pause.clear('full');
    expect(pause.begin('full', 'exceeded quota').retryAfterMs).toBe(5_000);
  });
});

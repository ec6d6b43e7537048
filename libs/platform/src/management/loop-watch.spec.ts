import { LoopWatch } from './loop-watch';

let nowMs: number;
let loop: LoopWatch;

beforeEach(() => {
  nowMs = 1_000_000;
  loop = new LoopWatch(() => nowMs);
});

/** The event loop stands still, then works. */
function block(ms: number, worksMs = 0): void {
  nowMs += ms;
  loop.observe(ms);
  nowMs += worksMs;
}

const fails = (check: 'checkReady' | 'checkLive'): boolean => {
  try {
    loop[check]();
    return false;
  } catch (error) {
    expect(error).toMatchObject({ reason: 'event_loop_blocked' });
    return true;
  }
};

describe('a process whose event loop is blocked', () => {
  it('is not ready for a while after it stood still for 30 s, but need not be killed: it works again', () => {
    block(30_000);
    expect([fails('checkReady'), fails('checkLive')]).toEqual([true, false]);
    nowMs += 15_000;
    expect(fails('checkReady')).toBe(false);
  });

  it('loses readiness first and liveness next where it stands still again and again', () => {
    const seen: [boolean, boolean][] = [];
    for (let i = 0; i < 12; i++) {
      block(3_000, 1_000);
      seen.push([fails('checkReady'), fails('checkLive')]);
    }
    expect(seen.findIndex(([ready]) => ready)).toBe(1);
    expect(seen.findIndex(([, live]) => live)).toBe(9);
  });

  it('is ready and alive while only short delays come', () => {
    for (let i = 0; i < 100; i++) block(900, 100);
    expect([fails('checkReady'), fails('checkLive')]).toEqual([false, false]);
  });

  it('is alive again once a minute has passed', () => {
    for (let i = 0; i < 12; i++) block(4_000);
    expect(fails('checkLive')).toBe(true);
    nowMs += 60_000;
    expect(fails('checkLive')).toBe(false);
  });
});

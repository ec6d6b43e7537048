import { HandBacks } from './hand-backs';

let nowMs: number;
let handBacks: HandBacks;

beforeEach(() => {
  nowMs = 0;
  handBacks = new HandBacks(() => nowMs);
});

const isDelayed = (epoch: number, c: number): boolean => handBacks.isDelayed({ _id: 'r', epoch, c });

/** Milliseconds until the run is offered. */
function waits(epoch: number, c: number): number {
  const fromMs = nowMs;
  while (isDelayed(epoch, c)) nowMs += 500;
  return nowMs - fromMs;
}

describe('a run that comes back to the queue', () => {
  it('is offered at once, the first time too', () => {
    expect([waits(1, 2), waits(3, 4)]).toEqual([0, 0]);
  });

  it('waits ever longer, up to a minute, while no owner stores anything', () => {
    const delays = Array.from({ length: 10 }, (_, i) => waits(1 + 2 * i, 2 + 2 * i));
    expect(delays).toEqual([0, 0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000]);
  });

  it('is offered at once again after an owner has stored something', () => {
    for (let i = 0; i < 5; i++) waits(1 + 2 * i, 2 + 2 * i);
    expect(waits(11, 13)).toBe(0);
  });

  it('does not wait longer because its row is looked at again', () => {
    for (let i = 0; i < 3; i++) isDelayed(1 + 2 * i, 2 + 2 * i);
    expect(isDelayed(5, 6)).toBe(true);
    nowMs = 1_000;
    expect(isDelayed(5, 6)).toBe(false);
  });
});

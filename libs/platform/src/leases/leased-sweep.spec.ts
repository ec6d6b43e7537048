import { createLogger } from '../logging/logger';
import { eachOf, LeasedSweep, type Sweep } from './leased-sweep';

const logger = createLogger({ service: 'spec', level: 'off' });

/** Leases of two replicas in memory. */
class Leases {
  static holder: string | undefined;
  readonly names: string[] = [];

  constructor(private readonly owner: string) {}

  async hold(name: string): Promise<boolean> {
    this.names.push(name);
    Leases.holder ??= this.owner;
    return Leases.holder === this.owner;
  }

  async release(): Promise<void> {
    if (Leases.holder === this.owner) Leases.holder = undefined;
  }
}

beforeEach(() => (Leases.holder = undefined));

function sweepOf(owner: string, work: Partial<Sweep>, onRepaired?: (name: string, count: number) => void) {
  const leases = new Leases(owner);
  const sweep: Sweep = { name: 'spec', everyMs: 1_000, sweep: () => Promise.resolve(0), ...work };
  return { leases, sweep: new LeasedSweep(sweep, { leases, logger, ...(onRepaired ? { onRepaired } : {}) }) };
}

describe('a leased sweep', () => {
  it('is done by one of two replicas, and by the other once the first has stopped', async () => {
    const done: string[] = [];
    const by = (owner: string) => sweepOf(owner, { sweep: async () => done.push(owner) }).sweep;
    const [first, second] = [by('first'), by('second')];
    await first.tick();
    await second.tick();
    expect(done).toEqual(['first']);
    await first.stop();
    await second.tick();
    expect(done).toEqual(['first', 'second']);
  });

  it('has a lease of its own, and tells what it repaired', async () => {
    const told: [string, number][] = [];
    const { leases, sweep } = sweepOf('a', { sweep: () => Promise.resolve(3) }, (...repaired) => told.push(repaired));
    await sweep.tick();
    expect(leases.names).toEqual(['sweep.spec']);
    expect(told).toEqual([['spec', 3]]);
  });

  it('goes on after a failure', async () => {
    let turns = 0;
    const fails = async (): Promise<number> => {
      turns += 1;
      if (turns === 1) throw new Error('the store is away');
      return 0;
    };
    const { sweep } = sweepOf('a', { sweep: fails });
    await sweep.tick();
    await sweep.tick();
    expect(turns).toBe(2);
  });

  it('begins only once the store has answered for a while, counted anew after each failure', async () => {
    let nowMs = 0;
    const clock = jest.spyOn(performance, 'now').mockImplementation(() => nowMs);
    const turns: number[] = [];
    let fails = true;
    const { sweep } = sweepOf('a', {
      settleMs: 60_000,
      sweep: async () => {
        turns.push(nowMs);
        if (fails) throw new Error('the store is away');
        return 0;
      },
    });
    for (; nowMs <= 150_000; nowMs += 10_000) {
      await sweep.tick();
      if (nowMs === 60_000) fails = false;
    }
    clock.mockRestore();
    expect(turns).toEqual([60_000, 120_000, 130_000, 140_000, 150_000]);
  });

  it('stops only when the batch under way is over', async () => {
    jest.useFakeTimers();
    let finish = (): void => undefined;
    const { sweep } = sweepOf('a', { sweep: () => new Promise((resolve) => (finish = () => resolve(0))) });
    sweep.start();
    await jest.advanceTimersByTimeAsync(1_000);
    let isStopped = false;
    const stopped = sweep.stop().then(() => (isStopped = true));
    await jest.advanceTimersByTimeAsync(5_000);
    expect(isStopped).toBe(false);
    finish();
    await stopped;
    jest.useRealTimers();
    expect(Leases.holder).toBeUndefined();
  });
});

describe('eachOf', () => {
  it('repairs also what stands behind a failure, and tells of the first', async () => {
    const done: number[] = [];
    const repair = async (n: number): Promise<void> => {
      if (n % 2) throw new Error(`${n} is odd`);
      done.push(n);
    };
    await expect(eachOf([1, 2, 3, 4], repair)).rejects.toThrow('1 is odd');
    expect(done).toEqual([2, 4]);
  });
});

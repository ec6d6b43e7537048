import { StalledWork } from './stalled';

let nowMs: number;
let sinceMs: number | undefined;
let isStoreUp: boolean;
let stalled: StalledWork;

beforeEach(() => {
  nowMs = 0;
  sinceMs = undefined;
  isStoreUp = true;
  stalled = new StalledWork({
    works: { 'a look at the queue': () => (sinceMs === undefined ? 0 : nowMs - sinceMs) },
    pingStore: () => (isStoreUp ? Promise.resolve() : Promise.reject(new Error('away'))),
    nowMs: () => nowMs,
  });
});

/** What the checks say each five seconds: `+` passes, `-` fails. */
async function probes(count: number): Promise<{ ready: string; live: string }> {
  const seen = { ready: '', live: '' };
  for (let i = 0; i < count; i++) {
    const outcomes = await Promise.allSettled([(async () => stalled.checkReady())(), stalled.checkLive()]);
    const [ready, live] = outcomes.map(({ status }) => (status === 'fulfilled' ? '+' : '-'));
    seen.ready += ready;
    seen.live += live;
    nowMs += 5_000;
  }
  return seen;
}

describe('a session replica whose dispatch hangs', () => {
  it('loses readiness first, liveness next, and has both again when it goes on', async () => {
    expect(await probes(3)).toEqual({ ready: '+++', live: '+++' });
    sinceMs = nowMs;
    expect(await probes(8)).toEqual({ ready: '+++-----', live: '++++++--' });
    sinceMs = undefined;
    expect(await probes(1)).toEqual({ ready: '+', live: '+' });
  });

  it('is not killed while it is the store that does not answer, nor for what hung with it', async () => {
    sinceMs = nowMs;
    isStoreUp = false;
    expect((await probes(10)).live).toBe('++++++++++');
    isStoreUp = true;
    expect((await probes(3)).live).toBe('+++');
    sinceMs = undefined;
    expect((await probes(3)).live).toBe('+++');
  });

  it('says what hangs', async () => {
    sinceMs = -20_000;
    expect(() => stalled.checkReady()).toThrow('a look at the queue has been going on for 20000 ms');
  });
});

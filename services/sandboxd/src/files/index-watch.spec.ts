import type { sandboxdPb } from '@margay/contracts';
import { IndexWatch } from './index-watch';

let nowMs: number;
let changes: number;
let files: string[];
let looks: number;
let told: (string[] | undefined)[];
let stop: AbortController;
let watch: IndexWatch;

beforeEach(() => {
  jest.useFakeTimers();
  [nowMs, changes, files, looks, told] = [0, 0, ['a'], 0, []];
  stop = new AbortController();
  const look = async () => {
    looks += 1;
    return { files } as sandboxdPb.ListFilesResponse;
  };
  watch = new IndexWatch({ look, changes: () => changes, now: () => nowMs });
});
afterEach(async () => {
  stop.abort();
  await jest.advanceTimersByTimeAsync(300);
  jest.useRealTimers();
});

function follow(): void {
  void (async () => {
    for await (const { index } of watch.watch(stop.signal)) told.push(index?.files);
  })();
}

async function pass(ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 50) {
    nowMs += 50;
    await jest.advanceTimersByTimeAsync(50);
  }
}

describe('the watch on an index', () => {
  it('tells it at once, and what has changed within two seconds', async () => {
    follow();
    await pass(50);
    expect(told).toEqual([['a']]);
    files = ['a', 'b'];
    changes += 1;
    await pass(2_000);
    expect(told).toEqual([['a'], ['a', 'b']]);
  });

  it('does not look while nothing can have changed, and tells nothing twice', async () => {
    follow();
    await pass(10_000);
    expect(looks).toBe(1);
    changes += 1;
    await pass(2_000);
    expect([looks, told]).toEqual([2, [['a']]]);
  });

  it('says now and then that nothing has changed', async () => {
    follow();
    await pass(20_500);
    expect(told).toEqual([['a'], undefined]);
  });

  it('looks now and then all the same: others may share the files', async () => {
    follow();
    await pass(50);
    files = ['b'];
    await pass(31_000);
    expect(told).toEqual([['a'], undefined, ['b']]);
  });

  it('keeps its looks apart, and shares them among those who watch', async () => {
    follow();
    follow();
    const noise = setInterval(() => (changes += 1), 50);
    await pass(10_000);
    clearInterval(noise);
    expect(looks).toBeLessThanOrEqual(9);
    expect(told).toEqual([['a'], ['a']]);
  });
});

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { killedForMemory } from './killed-for-memory';
import { LimitWatch } from './limit-watch';
import { shareTaken } from './workspace-space';

function watchOf(shares: number[], counts: number[] = []) {
  const ended: string[] = [];
  const watch = new LimitWatch({
    root: '/',
    workspaceBytes: 100,
    processes: 512,
    isBusy: () => true,
    end: async (limitHit, weigh) => void ended.push(weigh ? `${limitHit}: heaviest` : limitHit),
    measure: async () => shares.shift() ?? 0,
    count: async () => counts.shift() ?? 1,
    reap: async () => void ended.push('reaped'),
  });
  return { watch, ended };
}

describe('LimitWatch', () => {
  it('ends everything where there are too many processes', async () => {
    const { watch, ended } = watchOf([], [512, 513, 20, 513, 513]);
    await watch.look(0);
    expect(ended).toEqual([]);
    // Those that have ended do not count, once they are reaped.
    await watch.look(1_000);
    expect(ended).toEqual(['reaped']);
    await watch.look(2_000);
    expect(ended).toEqual(['reaped', 'reaped', 'processes']);
  });

  it('tells that the workspace fills, ends the heaviest call once when it is full, and lets it be emptied', async () => {
    const { watch, ended } = watchOf([0.5, 0.91, 0.96, 0.97, 0.4]);
    expect(watch.percent).toBeUndefined();
    await watch.look(0);
    expect([watch.note, watch.isFull, watch.percent]).toEqual([undefined, false, 50]);
    await watch.look(2_000);
    expect([watch.note, watch.isFull]).toEqual([expect.stringContaining('91 % full'), false]);
    for (const at of [4_000, 6_000]) await watch.look(at);
    expect([watch.isFull, ended]).toEqual([true, ['disk: heaviest']]);
    await watch.look(8_000);
    expect([watch.note, watch.isFull]).toEqual([undefined, false]);
  });

  it('does not measure again before a tenth of the time is over', async () => {
    const { watch } = watchOf([0.91, 0.2]);
    await watch.look(0);
    await watch.look(1_000);
    expect(watch.note).toBeDefined();
  });

  it('knows what a folder takes, and what the kernel killed', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'margay-space-'));
    try {
      writeFileSync(path.join(folder, 'a'), Buffer.alloc(1_000_000, 1));
      const share = await shareTaken(folder, 2_000_000);
      expect(share).toBeGreaterThan(0.49);
      expect(share).toBeLessThan(0.6);
      writeFileSync(path.join(folder, 'events'), 'low 0\noom 3\noom_kill 2\n');
      expect(await killedForMemory([path.join(folder, 'none'), path.join(folder, 'events')])).toBe(2);
      expect(await killedForMemory([])).toBe(0);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});

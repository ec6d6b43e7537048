import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryFolder } from './fixtures.testing';
import { tryLock, withLock, type FileLock } from './lock';

describe('file lock', () => {
  let folder: Awaited<ReturnType<typeof temporaryFolder>>;
  let file: string;

  beforeEach(async () => {
    folder = await temporaryFolder();
    file = join(folder.path, 'some.lock');
  });
  afterEach(() => folder.remove());

  it('names the holder to a second one, and is free after release', async () => {
    const lock = (await tryLock(file)) as FileLock;
    expect(await tryLock(file)).toMatchObject({ holder: { pid: process.pid } });
    await lock.release();
    expect(await tryLock(file)).toHaveProperty('release');
  });

  it('clears the lock of a process that is gone', async () => {
    await writeFile(file, JSON.stringify({ pid: 2 ** 22 + 1, identity: '1' }));
    expect(await tryLock(file)).toMatchObject({ cleared: { pid: 2 ** 22 + 1 } });
  });

  it('clears a lock whose process number now belongs to another process', async () => {
    await writeFile(file, JSON.stringify({ pid: process.pid, identity: 'an earlier start' }));
    expect(await tryLock(file)).toHaveProperty('release');
  });

  it('clears a lock file that is no lock', async () => {
    await writeFile(file, 'garbage');
    expect(await tryLock(file)).toHaveProperty('release');
  });

  it('gives a stale lock to exactly one of many', async () => {
    await writeFile(file, JSON.stringify({ pid: 2 ** 22 + 1, identity: '1' }));
    const results = await Promise.all(Array.from({ length: 20 }, () => tryLock(file)));
    expect(results.filter((result) => 'release' in result)).toHaveLength(1);
  });

  it('runs work under the lock one after the other and says that it waits', async () => {
    let inside = 0;
    let most = 0;
    const waits: number[] = [];
    const work = async () => {
      most = Math.max(most, ++inside);
      await new Promise(setImmediate);
      inside--;
    };
    await Promise.all([1, 2, 3].map(() => withLock(file, ({ pid }) => waits.push(pid), work)));
    expect(most).toBe(1);
    expect(waits).toContain(process.pid);
  });

  it('is released when the work fails', async () => {
    await expect(
      withLock(
        file,
        () => undefined,
        () => Promise.reject(new Error('no')),
      ),
    ).rejects.toThrow('no');
    expect(await tryLock(file)).toHaveProperty('release');
  });
});

import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fakeProgram, temporaryFolder } from '../fixtures.testing';
import { cachePath, fetchIntoCache, type CacheEntry } from './cache';
import { isProgram } from './find-program';

describe('fetchIntoCache', () => {
  let folder: Awaited<ReturnType<typeof temporaryFolder>>;
  let fetches: number;

  beforeEach(async () => {
    fetches = 0;
    folder = await temporaryFolder();
  });
  afterEach(() => folder.remove());

  const entry = (overrides: Partial<CacheEntry<string>> = {}): CacheEntry<string> => ({
    cacheDirectory: folder.path,
    name: 'server',
    version: '1.0.0',
    progress: () => undefined,
    find: async () => {
      const program = join(cachePath(folder.path, 'server', '1.0.0'), 'server');
      return (await isProgram(program)) ? program : undefined;
    },
    fetch: async (directory) => {
      fetches++;
      await fakeProgram(join(directory, 'server'), '1.0.0');
    },
    prove: async () => undefined,
    ...overrides,
  });

  it('fetches once for two that ask at the same time', async () => {
    const found = await Promise.all([fetchIntoCache(entry()), fetchIntoCache(entry())]);
    expect(fetches).toBe(1);
    expect(new Set(found).size).toBe(1);
    expect(await readdir(folder.path)).toEqual(['server-1.0.0']);
  });

  it('replaces an entry that does not work', async () => {
    await fakeProgram(join(folder.path, 'server-1.0.0/leftover'), '');
    await fetchIntoCache(entry());
    expect(await readdir(join(folder.path, 'server-1.0.0'))).toEqual(['server']);
  });

  it('leaves nothing of a fetch that failed', async () => {
    const fetch = async (directory: string) => {
      await writeFile(join(directory, 'half'), '');
      throw new Error('cut off');
    };
    await expect(fetchIntoCache(entry({ fetch }))).rejects.toThrow('cut off');
    expect(await readdir(folder.path)).toEqual([]);
  });

  it('leaves nothing of a server that does not start', async () => {
    const prove = () => Promise.reject(new Error('does not start'));
    await expect(fetchIntoCache(entry({ prove }))).rejects.toThrow('does not start');
    expect(await readdir(folder.path)).toEqual([]);
  });
});

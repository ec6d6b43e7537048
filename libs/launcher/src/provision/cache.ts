import { randomUUID } from 'node:crypto';
import { mkdir, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { UnavailableError } from '@margay/errors';
import { withLock } from '../lock';
import type { Progress } from '../progress';
import { compareVersions } from './versions';

export interface CachedVersion {
  version: string;
  directory: string;
}

/** Folder of one fetched server. */
export function cachePath(cacheDirectory: string, name: string, version: string): string {
  return join(cacheDirectory, `${name}-${version}`);
}

/** Cached versions of a server, newest first. */
export async function listCached(cacheDirectory: string, name: string): Promise<CachedVersion[]> {
  const names = await readdir(cacheDirectory).catch(() => []);
  return names
    .filter(
      (entry) =>
        entry.startsWith(`${name}-`) &&
        /^\d[0-9A-Za-z.-]*$/.test(entry.slice(name.length + 1)) &&
        !entry.endsWith('.lock'),
    )
    .map((entry) => ({ version: entry.slice(name.length + 1), directory: join(cacheDirectory, entry) }))
    .sort((a, b) => compareVersions(b.version, a.version));
}

export interface CacheEntry<T> {
  cacheDirectory: string;
  name: string;
  version: string;
  progress: Progress;
  /** What is there and works; undefined when there is nothing or it is broken. */
  find(): Promise<T | undefined>;
  /** Puts the server into an empty folder. */
  fetch(directory: string): Promise<void>;
  /** Proves a fresh copy by starting it; throws when it does not work. */
  prove(found: T): Promise<void>;
}

/**
 * Fetches into a folder beside the cache entry and moves it there at once, under a lock:
 * two processes never fetch twice, and a killed one leaves no half entry.
 */
export async function fetchIntoCache<T>(entry: CacheEntry<T>): Promise<T> {
  const target = cachePath(entry.cacheDirectory, entry.name, entry.version);
  const onWait = ({ pid }: { pid: number }) =>
    entry.progress(`${entry.name} ${entry.version} is being fetched by process ${pid}, waiting`);
  return withLock(`${target}.lock`, onWait, async () => {
    const present = await entry.find();
    if (present !== undefined) return present;
    const draft = join(entry.cacheDirectory, `.fetching-${randomUUID()}`);
    await mkdir(draft, { recursive: true });
    try {
      await entry.fetch(draft);
      await rm(target, { recursive: true, force: true });
      await rename(draft, target);
    } finally {
      await rm(draft, { recursive: true, force: true });
    }
    return proven(entry, target);
  });
}

async function proven<T>(entry: CacheEntry<T>, target: string): Promise<T> {
  try {
    const found = await entry.find();
    if (found === undefined)
      throw new UnavailableError(
        'provision_failed',
        `what was fetched for ${entry.name} ${entry.version} is not that server`,
      );
    await entry.prove(found);
    return found;
  } catch (error) {
    await rm(target, { recursive: true, force: true });
    throw error;
  }
}

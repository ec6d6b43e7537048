import { randomUUID } from 'node:crypto';
import { link, mkdir, readFile, rm, rmdir, stat, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { findIdentity } from './processes/process-identity';

/** A clearing that takes longer than this belongs to a process that died in it. */
const CLEARING_LIMIT_MS = 10_000;

export interface LockHolder {
  pid: number;
  identity: string;
}

export interface FileLock {
  /** Set when the lock of a dead process was cleared to get this one. */
  cleared?: LockHolder;
  release(): Promise<void>;
}

/** Takes the lock file, or answers who holds it. The lock of a process that no longer runs is cleared. */
export async function tryLock(file: string): Promise<FileLock | { holder: LockHolder }> {
  await mkdir(dirname(file), { recursive: true });
  let cleared: LockHolder | undefined;
  for (;;) {
    if (await create(file)) return { ...(cleared && { cleared }), release: () => rm(file, { force: true }) };
    const holder = await readHolder(file);
    if (!holder) continue;
    if (await isHeld(holder)) return { holder };
    if (await clearStale(file)) cleared = holder;
  }
}

/** Runs `work` under the lock file; waits while another process holds it. */
export async function withLock<T>(
  file: string,
  onWait: (holder: LockHolder) => void,
  work: () => Promise<T>,
): Promise<T> {
  const lock = await waitForLock(file, onWait);
  try {
    return await work();
  } finally {
    await lock.release();
  }
}

async function waitForLock(file: string, onWait: (holder: LockHolder) => void): Promise<FileLock> {
  for (let waits = 0; ; waits++) {
    const lock = await tryLock(file);
    if ('release' in lock) return lock;
    if (waits === 0) onWait(lock.holder);
    await sleep(200);
  }
}

/** The content is written before the name appears, so a lock file is never seen empty. */
async function create(file: string): Promise<boolean> {
  const draft = `${file}.${randomUUID()}`;
  const holder: LockHolder = { pid: process.pid, identity: (await findIdentity(process.pid)) ?? '' };
  await writeFile(draft, JSON.stringify(holder), { mode: 0o600 });
  try {
    await link(draft, file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  } finally {
    await rm(draft, { force: true });
  }
}

async function readHolder(file: string): Promise<LockHolder | undefined> {
  try {
    return JSON.parse(await readFile(file, 'utf8')) as LockHolder;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    if (error instanceof SyntaxError) return { pid: 0, identity: '' };
    throw error;
  }
}

async function isHeld(holder: LockHolder): Promise<boolean> {
  return holder.pid > 0 && (await findIdentity(holder.pid)) === holder.identity;
}

/** Removes a stale lock; the folder beside it keeps two clearers from removing a fresh one. */
async function clearStale(file: string): Promise<boolean> {
  const clearing = `${file}.clearing`;
  try {
    await mkdir(clearing);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    await removeAbandoned(clearing);
    return false;
  }
  try {
    const holder = await readHolder(file);
    if (!holder || (await isHeld(holder))) return false;
    await rm(file, { force: true });
    return true;
  } finally {
    await rmdir(clearing);
  }
}

async function removeAbandoned(clearing: string): Promise<void> {
  const facts = await stat(clearing).catch(() => undefined);
  if (facts && Date.now() - facts.mtimeMs > CLEARING_LIMIT_MS) await rm(clearing, { recursive: true, force: true });
  else await sleep(20);
}

import { createHash, randomBytes } from 'node:crypto';
import { chmod, mkdir, open, rename, rm, stat } from 'node:fs/promises';
import path from 'node:path';
import type { PreparedFile } from '../outcome';
import { readWhole } from './open-file';

export interface FileChange {
  path: string;
  /** null = the file did not exist. */
  before: string | null;
  after: string;
}

const sha256 = (data: string | Buffer): string => createHash('sha256').update(data).digest('hex');

/** Writes every new content beside its target, synced to disk. Renames nothing. */
export async function stageFiles(changes: readonly FileChange[]): Promise<PreparedFile[]> {
  const staged: PreparedFile[] = [];
  try {
    for (const change of changes) staged.push(await stageFile(change));
  } catch (error) {
    await discardFiles(staged);
    throw error;
  }
  return staged;
}

async function stageFile(change: FileChange): Promise<PreparedFile> {
  const folder = path.dirname(change.path);
  await mkdir(folder, { recursive: true });
  const temporary = path.join(folder, `.margay-${randomBytes(8).toString('hex')}.tmp`);
  const mode = change.before === null ? undefined : (await stat(change.path)).mode & 0o7777;
  const handle = await open(temporary, 'wx');
  try {
    await handle.writeFile(change.after);
    await handle.datasync();
  } finally {
    await handle.close();
  }
  if (mode !== undefined) await chmod(temporary, mode);
  const before = change.before === null ? null : sha256(change.before);
  return { path: change.path, temporary, before, after: sha256(change.after) };
}

/** Moves staged contents into place, each one atomically. */
export async function commitFiles(files: readonly PreparedFile[]): Promise<void> {
  for (const file of files) await rename(file.temporary, file.path);
}

export async function discardFiles(files: readonly PreparedFile[]): Promise<void> {
  for (const file of files) await rm(file.temporary, { force: true });
}

/**
 * Finishes an edit that was cut off after staging. `applied`: every file now has its new content. `untouched`: none
 * has, and the staged copies are gone too; the edit may run again. `conflict`: somebody else changed a file meanwhile.
 */
export async function recoverFiles(files: readonly PreparedFile[]): Promise<'applied' | 'untouched' | 'conflict'> {
  const states = await Promise.all(files.map(stateOf));
  if (states.includes('foreign')) {
    await discardFiles(files);
    return 'conflict';
  }
  if (states.every((state) => state === 'before') && states.length > 0) {
    await discardFiles(files);
    return 'untouched';
  }
  for (const [index, file] of files.entries()) {
    if (states[index] === 'staged') await rename(file.temporary, file.path);
    else if (states[index] === 'before') return 'conflict';
  }
  return 'applied';
}

async function stateOf(file: PreparedFile): Promise<'before' | 'staged' | 'after' | 'foreign'> {
  const current = await hashOf(file.path);
  if (current === file.after) return 'after';
  if (current !== file.before) return 'foreign';
  return (await hashOf(file.temporary)) === file.after ? 'staged' : 'before';
}

async function hashOf(file: string): Promise<string | null> {
  try {
    return sha256(await readWhole(file, file, Infinity));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return null;
    throw error;
  }
}

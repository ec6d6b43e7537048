import { createHash } from 'node:crypto';
import type { BigIntStats } from 'node:fs';
import { chmod, lstat, readdir, readlink } from 'node:fs/promises';
import picomatch from 'picomatch';
import { ResourceExhaustedError } from '@margay/errors';
import { bytesOf, joined, textOf, type ArchivePath } from './archive-path';

export interface TreeEntry {
  path: ArchivePath;
  kind: 'file' | 'directory' | 'symlink';
  mode: number;
  size: number;
  mtimeNs: bigint;
  /** Same for the names of one file; empty where it has one only. */
  inode: string;
  /** Of a link. */
  target?: string;
  /** Changes with everything that changes the entry. */
  stamp: string;
}

export const ENTRIES_MAX = 500_000;
/** Where restores put their files; never part of an archive. */
export const RESTORE_FOLDER = '.margay-restore';
const TOGETHER = 64;

/** Everything below a folder but sockets, pipes and devices, folders before what they hold, in the order of their names. */
export async function readTree(root: string, excludes: readonly string[] = []): Promise<TreeEntry[]> {
  const isExcluded = excludes.length === 0 ? () => false : picomatch([...excludes], { dot: true });
  const found: TreeEntry[] = [];
  const open = async (folder: ArchivePath, mode: number): Promise<void> => {
    const names = (await namesIn(root, folder, mode)).filter((name) => folder !== '' || name !== RESTORE_FOLDER);
    const paths = names.map((name) => joined(folder, name)).filter((path) => !isExcluded(textOf(path)));
    for (let at = 0; at < paths.length; at += TOGETHER) {
      const entries = await Promise.all(paths.slice(at, at + TOGETHER).map((path) => entryAt(root, path)));
      for (const entry of entries) {
        if (!entry) continue;
        found.push(entry);
        if (found.length > ENTRIES_MAX) throw tooMany();
        if (entry.kind === 'directory') await open(entry.path, entry.mode);
      }
    }
  };
  await open('', 0o700);
  return found;
}

/** Equal for trees whose paths, kinds, sizes, modes and times are equal. */
export function revisionOf(tree: readonly TreeEntry[]): string {
  const hash = createHash('sha256');
  for (const { path, kind, mode, size, mtimeNs, target = '' } of tree) {
    const seconds = kind === 'directory' ? 0n : mtimeNs / 1_000_000_000n;
    hash.update(`${path}\0${kind}\0${mode}\0${size}\0${seconds}\0${target}\n`, 'latin1');
  }
  return hash.digest('hex').slice(0, 16);
}

export const placeOf = (root: string, path: ArchivePath): Buffer =>
  Buffer.concat([Buffer.from(`${root}/`, 'utf8'), bytesOf(path)]);

/** Does what the mode of a file or folder of our own would keep us from, and sets it back. */
export async function withMode<T>(place: Buffer, mode: number, needed: number, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EACCES' || (mode & needed) === needed) throw error;
  }
  await chmod(place, mode | needed);
  try {
    return await work();
  } finally {
    await chmod(place, mode);
  }
}

async function namesIn(root: string, folder: ArchivePath, mode: number): Promise<string[]> {
  const place = folder === '' ? Buffer.from(root) : placeOf(root, folder);
  try {
    const names = await withMode(place, mode, 0o500, () => readdir(place, { encoding: 'buffer' }));
    return names.map((name) => name.toString('latin1')).sort();
  } catch (error) {
    if (isGone(error)) return [];
    throw error;
  }
}

async function entryAt(root: string, path: ArchivePath): Promise<TreeEntry | undefined> {
  const place = placeOf(root, path);
  try {
    const facts = await lstat(place, { bigint: true });
    const kind = kindOf(facts);
    if (!kind) return undefined;
    const target = kind === 'symlink' ? (await readlink(place, { encoding: 'buffer' })).toString('latin1') : undefined;
    const { mtimeNs, nlink, dev, ino } = facts;
    return {
      path,
      kind,
      mode: Number(facts.mode) & 0o7777,
      size: kind === 'file' ? Number(facts.size) : 0,
      mtimeNs,
      inode: kind === 'file' && nlink > 1n ? `${dev}:${ino}` : '',
      ...(target === undefined ? {} : { target }),
      stamp: stampOf(facts),
    };
  } catch (error) {
    if (isGone(error)) return undefined;
    throw error;
  }
}

function kindOf(facts: BigIntStats): TreeEntry['kind'] | undefined {
  if (facts.isFile()) return 'file';
  if (facts.isDirectory()) return 'directory';
  return facts.isSymbolicLink() ? 'symlink' : undefined;
}

function stampOf({ mode, size, mtimeNs, ctimeNs, ino }: BigIntStats): string {
  return createHash('sha1').update(`${mode} ${size} ${mtimeNs} ${ctimeNs} ${ino}`).digest('base64').slice(0, 14);
}

/** Commands may go on while we look. */
function isGone(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'ENOENT' || code === 'ENOTDIR';
}

function tooMany(): Error {
  return new ResourceExhaustedError(
    'snapshot_too_large',
    `The workspace holds more than ${ENTRIES_MAX} files; an archive of it is not made.`,
  );
}

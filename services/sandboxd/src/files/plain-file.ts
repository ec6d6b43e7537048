import { randomBytes } from 'node:crypto';
import { constants, type PathLike } from 'node:fs';
import { open, rename, rm, writeFile, type FileHandle } from 'node:fs/promises';

const { O_NOFOLLOW, O_NONBLOCK, O_RDONLY } = constants;
/** What lies there is no file, is gone, or is closed to us. */
const NOTHING = new Set(['ENOENT', 'ENOTDIR', 'EACCES', 'ELOOP', 'ENXIO', 'EISDIR', 'EPERM']);

/**
 * Opens a file and nothing else: commands may have put a pipe there, which would keep us waiting for ever for somebody who
 * writes to it. @returns undefined if there is none
 */
export async function openPlain(file: PathLike, { followsLinks = true } = {}): Promise<FileHandle | undefined> {
  const handle = await open(file, O_RDONLY | O_NONBLOCK | (followsLinks ? 0 : O_NOFOLLOW)).catch(
    (error: NodeJS.ErrnoException) => {
      if (NOTHING.has(error.code ?? '')) return undefined;
      throw error;
    },
  );
  if (!handle || (await handle.stat()).isFile()) return handle;
  await handle.close();
  return undefined;
}

/** Empty where there is no file. */
export async function readPlain(file: string): Promise<string> {
  const handle = await openPlain(file);
  if (!handle) return '';
  try {
    return await handle.readFile('utf8');
  } finally {
    await handle.close();
  }
}

/** In the place of whatever lies there, which is never written to. */
export async function replacePlain(file: string, text: string): Promise<void> {
  const temporary = `${file}.${randomBytes(4).toString('hex')}`;
  try {
    await writeFile(temporary, text, { flag: 'wx' });
    await rename(temporary, file);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  }
}

import { execFile } from 'node:child_process';
import { statfs } from 'node:fs/promises';
import { promisify } from 'node:util';

const run = promisify(execFile);
const LIMIT_MS = 60_000;
/** A file system that is not much larger than the workspace may be is the workspace's own. */
const OWN = 2;

/** Which share of what it may take a workspace takes, 0–1 and beyond. Counts blocks, not lengths: sparse files are small. */
export async function shareTaken(root: string, maxBytes: number): Promise<number> {
  const { blocks, bavail, bsize } = await statfs(root);
  const totalBytes = blocks * bsize;
  if (totalBytes <= maxBytes * OWN) return 1 - (bavail * bsize) / totalBytes;
  return (await bytesBelow(root)) / maxBytes;
}

/** Also where some of it cannot be read. */
async function bytesBelow(root: string): Promise<number> {
  const { stdout } = await run('du', ['-sxB1', root], { timeout: LIMIT_MS }).catch(
    (error: unknown) => error as { stdout?: string },
  );
  return Number.parseInt(stdout ?? '', 10) || 0;
}

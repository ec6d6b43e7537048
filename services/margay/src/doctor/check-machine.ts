import { statfs } from 'node:fs/promises';
import { fault, ok, reasonOf, warning, type Finding } from './finding';

const GIB = 1024 ** 3;
const WARNING = { bytes: 2 * GIB, share: 0.15 };
const FAULT = { bytes: GIB / 4, share: 0.02 };
/** First with zstd, which backups are written in. */
const NODE_WITH_ZSTD = [22, 15] as const;

/** Node itself, and room on the disks that are written to. */
export async function checkMachine(
  folders: readonly string[],
  nodeVersion = process.versions.node,
): Promise<Finding[]> {
  return [checkNode(nodeVersion), ...(await Promise.all([...new Set(folders)].map((folder) => checkDisk(folder))))];
}

function checkNode(version: string): Finding {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const hasZstd = major > NODE_WITH_ZSTD[0] || (major === NODE_WITH_ZSTD[0] && minor >= NODE_WITH_ZSTD[1]);
  if (hasZstd) return ok('machine.node', `Node ${version}`);
  return warning('machine.node', `Node ${version} has no zstd, which backups need`, `run Node 24`);
}

async function checkDisk(folder: string): Promise<Finding> {
  try {
    const { bavail, blocks, bsize } = await statfs(folder);
    const freeBytes = bavail * bsize;
    return diskFinding(folder, freeBytes, blocks === 0 ? 1 : bavail / blocks);
  } catch (error) {
    return fault('machine.disk', `${folder} can't be looked at: ${reasonOf(error)}`, 'make the folder, or mount it');
  }
}

/** @param share of the disk that is free */
export function diskFinding(folder: string, freeBytes: number, share: number): Finding {
  const detail = `${(freeBytes / GIB).toFixed(1)} GiB (${Math.round(share * 100)} %) free at ${folder}`;
  const isBelow = (limit: typeof FAULT) => freeBytes < limit.bytes && share < limit.share;
  if (freeBytes < FAULT.bytes || share < FAULT.share) return fault('machine.disk', detail, 'make room, or grow the volume'); // prettier-ignore
  return isBelow(WARNING) ? warning('machine.disk', detail, 'make room soon') : ok('machine.disk', detail);
}

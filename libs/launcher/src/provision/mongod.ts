import { chmod, mkdir, readdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { UnavailableError } from '@margay/errors';
import { cachePath, fetchIntoCache, listCached } from './cache';
import { downloadArchive } from './download';
import { findProgram, findVersion, isProgram } from './find-program';
import type { StoreBinary, StoreContext, StoreSource } from './store-binary';
import { isAtLeast, MONGOD_MINIMUM, MONGOD_RELEASE } from './versions';

const NAME = 'mongod';
const PROGRAM = process.platform === 'win32' ? 'mongod.exe' : NAME;

export async function findMongodOnPath({ config, progress }: StoreContext): Promise<StoreBinary | undefined> {
  const program = await findProgram(NAME, config.path);
  if (!program) return undefined;
  const found = await asMongod(program, 'path');
  if (!found) progress(`${program} is not a working mongod ${MONGOD_MINIMUM} or later; passed over`);
  return found;
}

/** Our own cache first, then what mongodb-memory-server once downloaded for another project. */
export async function findCachedMongod({ config }: StoreContext): Promise<StoreBinary | undefined> {
  for (const { directory } of await listCached(config.cacheDirectory, NAME)) {
    const found = await asMongod(join(directory, PROGRAM), 'mongod-cache');
    if (found) return found;
  }
  const { DryMongoBinary } = await import('mongodb-memory-server-core');
  const located = await DryMongoBinary.locateBinary({ version: MONGOD_RELEASE });
  return located === undefined ? undefined : asMongod(located, 'mongod-cache');
}

/**
 * The official archive for this distribution. mongodb-memory-server knows which one that is; its own download is
 * not used, because it neither verifies TLS certificates nor checksums unless told so by npm's configuration.
 */
export async function downloadMongod({ config, progress, prove }: StoreContext): Promise<StoreBinary | undefined> {
  const url = await archiveUrl();
  progress(`looking for mongod ${MONGOD_RELEASE} at ${new URL(url).host}`);
  const target = cachePath(config.cacheDirectory, NAME, MONGOD_RELEASE);
  return fetchIntoCache<StoreBinary>({
    cacheDirectory: config.cacheDirectory,
    name: NAME,
    version: MONGOD_RELEASE,
    progress,
    find: () => asMongod(join(target, PROGRAM), 'mongod-download'),
    fetch: (directory) => unpackMongod(url, directory, progress),
    prove,
  });
}

async function archiveUrl(): Promise<string> {
  const { DryMongoBinary } = await import('mongodb-memory-server-core');
  const { MongoBinaryDownloadUrl } = await import('mongodb-memory-server-core/lib/util/MongoBinaryDownloadUrl.js');
  const options = await DryMongoBinary.generateOptions({ version: MONGOD_RELEASE });
  const url = await new MongoBinaryDownloadUrl(options).getDownloadUrl();
  if (!url.endsWith('.tgz'))
    throw new UnavailableError('provision_failed', 'there is no mongod archive for this system to unpack by itself');
  return url;
}

async function unpackMongod(url: string, directory: string, progress: StoreContext['progress']): Promise<void> {
  const work = join(directory, 'work');
  await mkdir(work);
  await downloadArchive({ label: `mongod ${MONGOD_RELEASE}`, url, checksumUrl: `${url}.sha256`, progress }, work);
  const [folder = ''] = await readdir(work);
  await chmod(join(work, folder, 'bin', PROGRAM), 0o755);
  await rename(join(work, folder, 'bin', PROGRAM), join(directory, PROGRAM));
  await rm(work, { recursive: true, force: true });
}

async function asMongod(program: string, source: StoreSource): Promise<StoreBinary | undefined> {
  if (!(await isProgram(program))) return undefined;
  const version = await findVersion([program]);
  if (!version || !isAtLeast(version, MONGOD_MINIMUM)) return undefined;
  return { kind: 'binary', engine: 'mongod', version, command: [program], source };
}

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { FailedPreconditionError } from '@margay/errors';
import { launcherConfig, type LauncherConfig } from '../config';
import { noProgress, type Progress } from '../progress';
import { canOpen, engineMismatch, findStoreRecord, type StoreEngine } from '../servers/data-folder';
import { startStore } from '../servers/store-server';
import { downloadMongod, findCachedMongod, findMongodOnPath } from './mongod';
import { buildSecantus, findCachedSecantus, installSecantusWheel } from './secantus';
import { firstOf, type Source } from './sources';
import type { StoreBinary, StoreContext, StoreSource } from './store-binary';

export type StoreProvision = { kind: 'url'; url: string } | StoreBinary;

/** For `npm start`: a real mongod where one can be had, else what is there at once. */
export const START_SOURCES: readonly StoreSource[] = [
  'path',
  'mongod-cache',
  'mongod-download',
  'secantus-cache',
  'secantus-pypi',
];

/** For tests, benches and CI: nothing slow to run; the last two only where a Rust toolchain is missing. */
export const TEST_SOURCES: readonly StoreSource[] = [
  'path',
  'mongod-cache',
  'secantus-cache',
  'secantus-cargo',
  'mongod-download',
  'secantus-pypi',
];

export interface EnsureStoreOptions {
  progress?: Progress;
  config?: LauncherConfig;
  /** Sources to ask, in this order, behind the environment's URL; default START_SOURCES. */
  allow?: readonly StoreSource[];
  /** Data folder the store is for: what wrote it is found again, or the start refused. */
  directory?: string;
}

/** A document store: one that runs, or a binary, fetched once per machine. */
export async function ensureStore(options: EnsureStoreOptions = {}): Promise<StoreProvision> {
  const { progress = noProgress, config = launcherConfig(), allow = START_SOURCES, directory } = options;
  if (config.mongodbUrl !== undefined) {
    progress('document store: MARGAY_MONGODB_URL');
    return { kind: 'url', url: config.mongodbUrl };
  }
  const found = await findBinary({ config, progress, prove }, allow, directory);
  progress(`document store: ${found.engine} ${found.version} from ${found.source} (${found.command.at(-1)})`);
  if (found.engine !== 'mongod') progress('SecantusDB is a beta for development data; production runs on MongoDB');
  return found;
}

async function findBinary(
  context: StoreContext,
  allow: readonly StoreSource[],
  directory?: string,
): Promise<StoreBinary> {
  const record = directory === undefined ? undefined : await findStoreRecord(directory);
  const passedOver: StoreBinary[] = [];
  const sources = allow
    .filter((name) => !record || ENGINES[name] === record.engine)
    .map((name): Source<StoreBinary> => ({
      name,
      find: async () => {
        const found = await FINDERS[name](context);
        if (!found || !record || canOpen(record, found)) return found;
        passedOver.push(found);
        return undefined;
      },
    }));
  const advice = 'Set MARGAY_MONGODB_URL, or put mongod 7 or later on the PATH.';
  try {
    return await firstOf('document store', sources, context.progress, advice);
  } catch (cause) {
    if (!record || directory === undefined) throw cause;
    const other = passedOver.map(({ engine, version }) => `${engine} ${version}`).join(', ');
    const mismatch = engineMismatch(directory, record, other || 'no such server');
    throw new FailedPreconditionError('store_engine_mismatch', mismatch.message, { cause });
  }
}

const ENGINES: Record<StoreSource, StoreEngine> = {
  path: 'mongod',
  'mongod-cache': 'mongod',
  'mongod-download': 'mongod',
  'secantus-cache': 'secantusd-rs',
  'secantus-cargo': 'secantusd-rs',
  'secantus-pypi': 'secantusd-py',
};

const FINDERS: Record<StoreSource, (context: StoreContext) => Promise<StoreBinary | undefined>> = {
  path: findMongodOnPath,
  'mongod-cache': findCachedMongod,
  'mongod-download': downloadMongod,
  'secantus-cache': findCachedSecantus,
  'secantus-cargo': buildSecantus,
  'secantus-pypi': installSecantusWheel,
};

async function prove({ engine, version, command }: StoreBinary): Promise<void> {
  const directory = await mkdtemp(join(tmpdir(), 'margay-store-'));
  try {
    const server = await startStore({ directory, engine, version, command });
    await server.stop();
  } finally {
    await rm(directory, { recursive: true, force: true });
  }
}

import * as os from 'node:os';
import { setTimeout as pause } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { InvalidArgumentError, UnavailableError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import { MongoClient, MongoServerError } from 'mongodb';

const USAGE = `Usage: margay.cjs prepare-store [--initiate NAME]
Waits until the store of MARGAY_MONGODB_URL takes writes; --initiate makes a replica set of that name of its one
member, where it is none yet.`;
const LIMIT_MS = 300_000;
const RETRY_MS = 1_000;
const SELECTION_TIMEOUT_MS = 5_000;
const ALREADY_INITIALIZED = 23;

export interface PrepareOptions {
  url: string;
  /** Name of the replica set that the server was started for. */
  replicaSet?: string;
  logger: Logger;
  limitMs?: number;
}

/** @throws InvalidArgumentError `usage` */
export function parsePrepareStore(argv: readonly string[]): string | undefined {
  try {
    return parseArgs({ args: [...argv], options: { initiate: { type: 'string' } } }).values.initiate;
  } catch (error) {
    throw new InvalidArgumentError('usage', `${(error as Error).message}\n${USAGE}`);
  }
}

/** Waits for a document store that may just be starting. @throws UnavailableError `store_unavailable` */
export async function prepareStore({ url, replicaSet, logger, limitMs = LIMIT_MS }: PrepareOptions): Promise<void> {
  const until = performance.now() + limitMs;
  for (;;) {
    try {
      return await attempt(url, replicaSet, logger);
    } catch (cause) {
      if (performance.now() > until)
        throw new UnavailableError('store_unavailable', `The document store took no writes for ${limitMs} ms; look at its logs.`, { cause }); // prettier-ignore
      logger.info({ err: cause }, 'the document store is not ready yet');
      await pause(RETRY_MS);
    }
  }
}

async function attempt(url: string, replicaSet: string | undefined, logger: Logger): Promise<void> {
  const client = new MongoClient(url, { serverSelectionTimeoutMS: SELECTION_TIMEOUT_MS, runtimeAdapters: { os } });
  try {
    const admin = client.db('admin');
    const { isWritablePrimary, setName } = await admin.command({ hello: 1 });
    if (isWritablePrimary) return;
    if (replicaSet !== undefined && setName === undefined) await initiate(client, replicaSet, logger);
    throw new UnavailableError('store_not_primary', 'The document store takes no writes yet.');
  } finally {
    await client.close();
  }
}

/** The member is called by an address that it always has; clients connect to it directly. */
async function initiate(client: MongoClient, name: string, logger: Logger): Promise<void> {
  const replSetInitiate = {
    _id: name,
    members: [{ _id: 0, host: `localhost:${client.options.hosts[0]?.port ?? 27017}` }],
  };
  try {
    await client.db('admin').command({ replSetInitiate });
    logger.info({ name }, 'replica set initiated');
  } catch (error) {
    if (error instanceof MongoServerError && error.code === ALREADY_INITIALIZED) return;
    throw error;
  }
}

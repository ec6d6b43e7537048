import { InvalidArgumentError, UnavailableError } from '@margay/errors';
import { storeGenerationOf, type ServiceShared } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import { BUILTIN_TOOLS } from '@margay/toolbox';
import type { ToolExecutorConfig } from '../config';
import { HttpTool } from './http-tool';
import { readHttpTools } from './http-tool-file';
import { MongoGuardStore } from './mongo-guard-store';
import { OutsideCalls } from './outside-calls';

export interface OpenOutside {
  calls: OutsideCalls;
  close(): Promise<void>;
}

const STORE_WAIT_MS = 60_000;

/** The tools outside sandboxes with their guard; undefined where the operator has defined none. */
export async function openOutside(
  config: ToolExecutorConfig,
  { logger, management }: Pick<ServiceShared, 'logger' | 'management'>,
): Promise<OpenOutside | undefined> {
  const { MARGAY_HTTP_TOOLS_FILE: file, MARGAY_MONGODB_URL: url, MARGAY_MONGODB_DATABASE: database } = config;
  if (file === undefined) return undefined;
  const names = new Set(BUILTIN_TOOLS.map(({ tool_id: id }) => id));
  const tools = readHttpTools(file, names).map((settings) => new HttpTool(settings));
  if (url === undefined) throw missing();
  const mongo = new MongoConnection({ url, database, logger, name: 'tool-executor', registry: management.registry });
  try {
    await mongo.ready(STORE_WAIT_MS);
    const store = await openStore(mongo);
    const generation = storeGenerationOf(database);
    const lostMs = config.MARGAY_CALL_LOST_SECONDS * 1_000;
    const calls = new OutsideCalls({ store, tools, logger, generation, lostMs });
    logger.info({ tools: tools.length }, 'tools outside sandboxes are ready');
    return { calls, close: () => calls.close().finally(() => mongo.close()) };
  } catch (error) {
    await mongo.close();
    throw error;
  }
}

async function openStore(mongo: MongoConnection): Promise<MongoGuardStore> {
  const { db } = mongo.connection;
  if (!db) throw new UnavailableError('store_unavailable', 'The document store is not connected.');
  const store = new MongoGuardStore(db.collection('toolCalls'), db.collection('outsideEpochs'));
  await store.createIndexes();
  return store;
}

function missing(): Error {
  return new InvalidArgumentError(
    'bad_environment',
    'Cannot start: MARGAY_HTTP_TOOLS_FILE needs MARGAY_MONGODB_URL too, where calls are recorded before they are made.',
  );
}

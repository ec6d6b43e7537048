import { UnavailableError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import type { ToolExecutorConfig } from '../config';
import type { IndexStore } from './index-store';
import { MemoryIndexStore } from './memory-index-store';
import { MongoIndexStore } from './mongo-index-store';

export interface OpenIndex {
  store: IndexStore;
  close(): Promise<void>;
}

const STORE_WAIT_MS = 60_000;

/** In the document store where there is one, so that all replicas share what one of them was told. */
export async function openIndex(
  config: Pick<ToolExecutorConfig, 'MARGAY_MONGODB_URL' | 'MARGAY_MONGODB_DATABASE'>,
  logger: Logger,
): Promise<OpenIndex> {
  const { MARGAY_MONGODB_URL: url, MARGAY_MONGODB_DATABASE: database } = config;
  if (url === undefined) return { store: new MemoryIndexStore(), close: async () => undefined };
  const mongo = new MongoConnection({ url, database, logger, name: 'tool-executor' });
  try {
    await mongo.ready(STORE_WAIT_MS);
    const { db } = mongo.connection;
    if (!db) throw new UnavailableError('store_unavailable', 'The document store is not connected.');
    const store = new MongoIndexStore(db.collection('workspaceIndex'), db.collection('workspaceIndexParts'));
    await store.createIndexes();
    return { store, close: () => mongo.close() };
  } catch (error) {
    await mongo.close();
    throw error;
  }
}

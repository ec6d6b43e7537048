import type { Db } from 'mongodb';
import type { IndexStore } from './index-store';
import { MemoryIndexStore } from './memory-index-store';
import { MongoIndexStore } from './mongo-index-store';

/** In the document store where there is one, so that all replicas share what one of them was told. */
export async function openIndex(db: Db | undefined): Promise<IndexStore> {
  if (!db) return new MemoryIndexStore();
  const store = new MongoIndexStore(db.collection('workspaceIndex'), db.collection('workspaceIndexParts'));
  await store.createIndexes();
  return store;
}

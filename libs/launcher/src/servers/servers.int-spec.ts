import { readFile, writeFile } from 'node:fs/promises';
import * as os from 'node:os';
import { join } from 'node:path';
import { connect, StorageType } from 'nats';
import { mongo } from 'mongoose';
import { temporaryFolder } from '../fixtures.testing';
import { openServers, type OpenServers } from '../open-servers';
import { findIdentity } from '../processes/process-identity';
import { TEST_SOURCES } from '../provision/store';
import { startStore } from './store-server';

describe('real servers', () => {
  let folder: Awaited<ReturnType<typeof temporaryFolder>>;
  let servers: OpenServers | undefined;

  beforeEach(async () => {
    folder = await temporaryFolder();
  });
  afterEach(async () => {
    await servers?.stop();
    servers = undefined;
    await folder.remove();
  });

  const open = async () => (servers = await openServers({ directory: folder.path, allow: TEST_SOURCES }));

  it('keep what was written over a restart, and end by their process ids', async () => {
    const first = await open();
    await writeToBoth(first);
    const pids = [first.nats.pid, first.store.pid].filter((pid) => pid !== undefined);
    await first.stop();
    expect(await Promise.all(pids.map(findIdentity))).toEqual(pids.map(() => undefined));
    expect(await readFromBoth(await open())).toEqual({ messages: 1, documents: 1 });
  }, 300_000);

  it('refuse a data folder that another engine wrote', async () => {
    const { store, stop } = await open();
    if (store.engine === 'external') return;
    await stop();
    servers = undefined;
    const record = JSON.parse(await readFile(join(folder.path, 'store/engine.json'), 'utf8'));
    expect(record).toEqual({ engine: store.engine, version: store.version });
    const other = {
      engine: 'secantusd-py' as const,
      version: '0.0.1',
      command: ['true'],
      directory: join(folder.path, 'store'),
    };
    await expect(startStore(other)).rejects.toMatchObject({ reason: 'store_engine_mismatch' });
    await writeFile(join(folder.path, 'store/engine.json'), '{"engine":"other"}');
    await expect(open()).rejects.toMatchObject({ reason: 'store_record_unreadable' });
  }, 300_000);
});

async function writeToBoth({ nats, store }: OpenServers): Promise<void> {
  const connection = await connect({ servers: nats.url });
  const manager = await connection.jetstreamManager();
  await manager.streams.add({ name: 'TEST', subjects: ['test.>'], storage: StorageType.File });
  await connection.jetstream().publish('test.one', 'kept');
  await connection.close();
  await withStore(store.url, async (collection) => {
    await collection.drop();
    await collection.insertOne({ kept: true });
  });
}

async function readFromBoth({ nats, store }: OpenServers): Promise<{ messages: number; documents: number }> {
  const connection = await connect({ servers: nats.url });
  const { state } = await (await connection.jetstreamManager()).streams.info('TEST');
  await connection.close();
  return {
    messages: state.messages,
    documents: await withStore(store.url, (collection) => collection.countDocuments({ kept: true })),
  };
}

async function withStore<T>(url: string, use: (collection: mongo.Collection) => Promise<T>): Promise<T> {
  const client = new mongo.MongoClient(url, {
    w: 'majority',
    journal: true,
    retryWrites: true,
    runtimeAdapters: { os },
  });
  try {
    return await use(client.db('launcher_test').collection('kept'));
  } finally {
    await client.close();
  }
}

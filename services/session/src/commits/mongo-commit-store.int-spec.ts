import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openStore, type OpenStore } from '@margay/launcher';
import { commitStoreContract, type CommitStoreHarness } from '@margay/testing';
import { MongoClient, type Db } from 'mongodb';
import { MongoCommitStore } from './mongo-commit-store';

const database = `margay_commits_${process.pid}`;
const clients: MongoClient[] = [];
let directory: string;
let server: OpenStore;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'margay-commits-'));
  server = await openStore({ directory });
  for (let i = 0; i < 2; i++)
    clients.push(await new MongoClient(server.url, { writeConcern: { w: 'majority', journal: true } }).connect());
}, 300_000);
afterAll(async () => {
  await clients[0]?.db(database).dropDatabase();
  await Promise.all(clients.map((client) => client.close()));
  await server.stop();
  await rm(directory, { recursive: true });
});

async function make(): Promise<CommitStoreHarness> {
  const [store, other] = clients.map((client) => storeIn(client.db(database))) as [MongoCommitStore, MongoCommitStore];
  await store.createIndexes();
  const commits = clients[0]?.db(database).collection('commits');
  return { store, other, close: async () => commits?.deleteMany({}) };
}

function storeIn(db: Db): MongoCommitStore {
  return new MongoCommitStore(db.collection('commits'), db.collection('sessions'));
}

describe('MongoCommitStore', () => {
  it.each(commitStoreContract(make))('$title', ({ check }) => check(), 60_000);
});

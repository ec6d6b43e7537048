import { commitStoreContract, type CommitStoreHarness } from '@margay/testing';
import type { Db } from 'mongodb';
import { RealStore } from '../spec/real-store';
import { MongoCommitStore } from './mongo-commit-store';

const real = new RealStore();

beforeAll(() => real.start(), 300_000);
afterAll(() => real.stop());

async function make(): Promise<CommitStoreHarness> {
  const [store, other] = [storeIn(real.db), storeIn(real.otherDb)];
  await Promise.all([store.createIndexes(), other.createIndexes()]);
  return { store, other, close: async () => real.db.collection('commits').deleteMany({}) };
}

function storeIn(db: Db): MongoCommitStore {
  return new MongoCommitStore(db.collection('commits'), db.collection('sessions'));
}

describe('MongoCommitStore', () => {
  it.each(commitStoreContract(make))('$title', ({ check }) => check(), 60_000);
});

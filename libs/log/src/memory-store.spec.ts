import { commitStoreContract, createCommand, hashed } from '@margay/testing';
import { fold } from './build';
import type { CommitDocument } from './document';
import { emptyHead } from './head';
import { MemoryCommitStore } from './memory-store';

describe('MemoryCommitStore', () => {
  const make = () => {
    const store = new MemoryCommitStore();
    return Promise.resolve({ store, other: store, close: () => Promise.resolve() });
  };

  it.each(commitStoreContract(make))('$title', ({ check }) => check());

  it('shares no object with its readers', async () => {
    const { store } = await make();
    await store.insert(DOCUMENT);
    const read = (await store.readNumber('session', 1)) as CommitDocument;
    read.commitIds.push('changed');
    expect(await store.readNumber('session', 1)).toEqual(DOCUMENT);
  });

  it('refuses a document whose id does not name its number', async () => {
    const { store } = await make();
    await expect(store.insert({ ...DOCUMENT, c: 2 })).rejects.toThrow('is not number 2');
  });
});

const { document } = fold({ head: emptyHead('session'), hash: '' }, [hashed(createCommand())], 1_000_000);
const DOCUMENT = document as CommitDocument;

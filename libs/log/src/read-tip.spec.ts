import { createCommand, hashed, messageCommand } from '@margay/testing';
import { fold } from './build';
import { tipOf, type CommitDocument, type Tip } from './document';
import { emptyHead } from './head';
import { MemoryCommitStore } from './memory-store';
import { readConfirmedTip, readTip } from './read-tip';

const SESSION = 'session';

/** Counts reads; plain ones show no more than the first `visible` commits, the lower bound is what a test sets. */
class PartialStore extends MemoryCommitStore {
  bound = 0;
  visible = Infinity;
  reads = 0;

  override lowerBound(): Promise<number> {
    return Promise.resolve(this.bound);
  }

  override readNumber(sessionId: string, c: number, options: { linearizable?: boolean } = {}) {
    this.reads++;
    if (c > this.visible && !options.linearizable) return Promise.resolve(undefined);
    return super.readNumber(sessionId, c);
  }
}

async function storeOf(length: number): Promise<PartialStore> {
  const store = new PartialStore();
  let tip: Tip = { head: emptyHead(SESSION), hash: '' };
  for (let c = 1; c <= length; c++) {
    const commands = c === 1 ? [createCommand()] : [messageCommand(`message ${c}`)];
    const document = fold(tip, commands.map(hashed), c).document as CommitDocument;
    await store.insert(document);
    tip = tipOf(document);
  }
  return store;
}

describe('readTip', () => {
  it.each([0, 1, 2, 3, 63, 64, 65, 66, 128, 193, 300])(
    'finds the end of %i commits from every bound',
    async (length) => {
      const store = await storeOf(length);
      for (const bound of new Set([0, 1, Math.floor(length / 2), length - 1, length])) {
        store.bound = Math.max(0, bound);
        expect((await readTip(store, SESSION)).head.c).toBe(length);
      }
    },
  );

  it('reads two documents where the bound is the end, and few where it is far behind', async () => {
    const store = await storeOf(1_000);
    store.bound = 1_000;
    await readTip(store, SESSION);
    expect(store.reads).toBe(2);
    store.reads = 0;
    store.bound = 0;
    await readTip(store, SESSION);
    expect(store.reads).toBeLessThan(20);
  });

  it('starts from the first commit where the bound names one that is not there', async () => {
    const store = await storeOf(70);
    store.bound = 90;
    expect((await readTip(store, SESSION)).head.c).toBe(70);
  });

  it('shows what plain reads show', async () => {
    const store = await storeOf(70);
    store.visible = 40;
    store.bound = 60;
    expect((await readTip(store, SESSION)).head.c).toBe(40);
    store.visible = 0;
    expect(await readTip(store, SESSION)).toEqual({ head: emptyHead(SESSION), hash: '' });
  });
});

describe('readConfirmedTip', () => {
  it.each([0, 40, 69, 70])('reads on to the true end where plain reads end at %i', async (visible) => {
    const store = await storeOf(70);
    store.visible = visible;
    const last = await store.readNumber(SESSION, 70, { linearizable: true });
    expect(await readConfirmedTip(store, SESSION)).toEqual(tipOf(last as CommitDocument));
  });
});

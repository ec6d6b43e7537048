import assert from 'node:assert/strict';
import { fold, hashOf } from '../build';
import type { LogClock } from '../clock';
import type { Command } from '../command';
import { CommitLoop } from '../commit-loop';
import { commitKey, tipOf, type CommitDocument, type Tip } from '../document';
import { emptyHead } from '../head';
import type { CommitStore } from '../store';
import { acceptCommand, createCommand, hashed, messageCommand } from './sample-commands';

/** Two clients of one empty store; an implementation without clients gives the same object twice. */
export interface CommitStoreHarness {
  store: CommitStore;
  other: CommitStore;
  close: () => Promise<unknown>;
}

export interface ContractCase {
  title: string;
  check: () => Promise<void>;
}

export interface CommitStoreContractOptions {
  /** Of the loops that append at once. */
  clock: LogClock;
  /** Documents of the long session that is read in ranges; default 2,000. */
  longSession?: number;
}

/**
 * What the log rests on (docs/protocol.md §9), for every implementation of `CommitStore`. Use:
 * `it.each(commitStoreContract(make))('$title', ({ check }) => check())`, or run the checks one by one without jest: a
 * check rejects where the promise is broken.
 */
export function commitStoreContract(
  make: () => Promise<CommitStoreHarness>,
  { clock, longSession = 2_000 }: CommitStoreContractOptions,
): ContractCase[] {
  const within = async (body: Check): Promise<void> => {
    const harness = await make();
    try {
      await body(harness, { clock, longSession });
    } finally {
      await harness.close();
    }
  };
  return Object.entries(CASES).map(([title, body]) => ({ title, check: () => within(body) }));
}

type Check = (harness: CommitStoreHarness, options: Required<CommitStoreContractOptions>) => Promise<void>;

const SESSION = '0123456789abcdef0123456789abcdef';
const START_MICROS = 1_700_000_000_000_000;

const CASES: Record<string, Check> = {
  'lets one of 200 concurrent inserts of one number win, and keeps its bytes': async ({ store, other }) => {
    const rivals = times(200, (i) => successor(START, [messageCommand(`rival ${i}`)]));
    const outcomes = await Promise.all(rivals.map((rival, i) => (i % 2 ? store : other).insert(rival)));
    assert.deepEqual(counts(outcomes), { inserted: 1, exists: 199 });
    const winner = rivals[outcomes.indexOf('inserted')];
    assert.deepEqual(await store.readNumber(SESSION, 1), winner);
    assert.deepEqual(await other.readNumber(SESSION, 1, { linearizable: true }), winner);
  },

  'says that a repeated insert exists, also from another client, and changes nothing': async ({ store, other }) => {
    const first = successor(START, [messageCommand('one')]);
    assert.equal(await store.insert(first), 'inserted');
    assert.equal(await store.insert(first), 'exists');
    assert.equal(await other.insert({ ...first, hash: 'another' }), 'exists');
    assert.deepEqual(await other.readNumber(SESSION, 1), first);
  },

  'stores a commit id once per session, in whichever document it comes again': async ({ store }) => {
    const [first, second, third] = five();
    await store.insert(first);
    await store.insert(second);
    const [, id] = second.commitIds as [string, string];
    assert.equal(await store.insert({ ...third, commitIds: ['fresh', id] }), 'exists');
    assert.equal(await store.readNumber(SESSION, 3), undefined);
    assert.equal(await store.insert(third), 'inserted');
  },

  'lets one of 50 concurrent documents with the same commit id win': async ({ store, other }) => {
    const documents = chain(50).map((document, i) => ({ ...document, commitIds: [`own ${i}`, 'shared'] }));
    const outcomes = await Promise.all(documents.map((document, i) => (i % 2 ? store : other).insert(document)));
    assert.deepEqual(counts(outcomes), { inserted: 1, exists: 49 });
    const found = await store.findByCommitId(SESSION, 'shared', { linearizable: true });
    assert.equal(found?.c, outcomes.indexOf('inserted') + 1);
  },

  'says that it exists where the number and a commit id are taken at once, by different documents': async ({
    store,
    other,
  }) => {
    const [first, second, third] = five();
    for (const document of [first, second]) await store.insert(document);
    const [id] = first.commitIds as [string];
    // Which of both indexes is named is the store's choice; whoever inserted looks for his commands first.
    assert.equal(await other.insert({ ...second, commitIds: ['fresh', id] }), 'exists');
    assert.deepEqual(await other.findByCommitId(SESSION, id, { linearizable: true }), first);
    assert.deepEqual(await other.readNumber(SESSION, 2), second);
    assert.equal(await other.insert(third), 'inserted');
  },

  'keeps sessions apart: numbers, commit ids, ranges': async ({ store }) => {
    const mine = chain(3);
    const theirs = chain(2, `${SESSION}0`);
    for (const document of [...mine, ...theirs]) assert.equal(await store.insert(document), 'inserted');
    assert.deepEqual(await numbers(store.range(SESSION, 1)), [1, 2, 3]);
    assert.deepEqual(await numbers(store.range(`${SESSION}0`, 1)), [1, 2]);
    const [id] = five()[0].commitIds as [string];
    assert.equal((await store.findByCommitId(`${SESSION}0`, id))?.sessionId, `${SESSION}0`);
  },

  'finds a document by each of its commit ids': async ({ store, other }) => {
    const [first, second] = five();
    await store.insert(first);
    await store.insert(second);
    for (const id of second.commitIds)
      for (const linearizable of [false, true])
        assert.deepEqual(await other.findByCommitId(SESSION, id, { linearizable }), second);
    assert.equal(await store.findByCommitId(SESSION, 'unknown'), undefined);
    assert.equal(await store.findByCommitId(SESSION, 'unknown', { linearizable: true }), undefined);
  },

  'gives back what was inserted, whatever its texts and keys are': async ({ store, other }) => {
    const odd = {
      'a.b': 1,
      $set: { $gt: '' },
      '': null,
      list: [[], {}],
      text: 'žluť 🐆 \u0000 "quoted"',
      big: 2 ** 52,
    };
    const document = successor(START, [acceptCommand('odd', { context: { ...odd, ['__proto__']: 'x' } })]);
    await store.insert(document);
    const found = await other.readNumber(SESSION, 1);
    assert.deepEqual(found, document);
    assert.equal(hashOf('', found as CommitDocument), document.hash);
    assert.equal(JSON.stringify(found?.events), JSON.stringify(document.events));
  },

  'keeps the mark of effects, also its absence': async ({ store }) => {
    const [first, second] = five();
    await store.insert({ ...first, effectsDueAt: 1_700_000_000_123 });
    await store.insert({ ...second, effectsDueAt: null });
    assert.equal((await store.readNumber(SESSION, 1))?.effectsDueAt, 1_700_000_000_123);
    assert.equal((await store.readNumber(SESSION, 2))?.effectsDueAt, null);
  },

  'shows nothing where nothing is': async ({ store }) => {
    assert.equal(await store.readNumber(SESSION, 1), undefined);
    assert.equal(await store.readNumber(SESSION, 1, { linearizable: true }), undefined);
    assert.deepEqual(await numbers(store.range(SESSION, 1)), []);
    assert.equal(await store.findNumberByTs(SESSION, Number.MAX_SAFE_INTEGER), 0);
    assert.equal(await store.lowerBound(SESSION), 0);
  },

  'shows each acknowledged insert to a linearizable read of another client': async ({ store, other }) => {
    for (const document of chain(50)) {
      assert.equal(await other.readNumber(SESSION, document.c, { linearizable: true }), undefined);
      await store.insert(document);
      const found = await other.readNumber(SESSION, document.c, { linearizable: true });
      assert.equal(found?.hash, document.hash);
    }
  },

  'reads ranges in order, within their bounds, up to the first gap': async ({ store }) => {
    for (const document of chain(9)) if (document.c !== 7) await store.insert(document);
    assert.deepEqual(await numbers(store.range(SESSION, 1)), [1, 2, 3, 4, 5, 6]);
    assert.deepEqual(await numbers(store.range(SESSION, 3, 5)), [3, 4, 5]);
    assert.deepEqual(await numbers(store.range(SESSION, 6, 6)), [6]);
    assert.deepEqual(await numbers(store.range(SESSION, 7)), []);
    assert.deepEqual(await numbers(store.range(SESSION, 8)), [8, 9]);
  },

  'finds the last commit that starts at a time or before it': async ({ store }) => {
    const documents = five();
    for (const document of documents) await store.insert(document);
    const [first, second, , , last] = documents;
    assert.equal(await store.findNumberByTs(SESSION, first.ts0 - 1), 0);
    assert.equal(await store.findNumberByTs(SESSION, first.ts0), 1);
    assert.equal(await store.findNumberByTs(SESSION, second.ts0 - 1), 1);
    assert.equal(await store.findNumberByTs(SESSION, second.ts0), 2);
    assert.equal(await store.findNumberByTs(SESSION, last.ts0 + 1), 5);
  },

  'never claims more than the log has': async ({ store }) => {
    for (const document of chain(5)) {
      await store.insert(document);
      assert.ok((await store.lowerBound(SESSION)) <= document.c);
    }
  },

  'reads a long session in ranges': async ({ store }, { longSession }) => {
    const documents = chain(longSession);
    for (let i = 0; i < documents.length; i += 50)
      await Promise.all(documents.slice(i, i + 50).map((document) => store.insert(document)));
    const all = await numbers(store.range(SESSION, 1));
    assert.equal(all.length, longSession);
    assert.deepEqual(
      all,
      times(longSession, (i) => i + 1),
    );
    const middle = Math.floor(longSession / 2);
    assert.deepEqual(await numbers(store.range(SESSION, middle, middle + 99)), all.slice(middle - 1, middle + 99));
    const { ts0 } = documents[middle - 1] as CommitDocument;
    assert.equal(await store.findNumberByTs(SESSION, ts0), middle);
  },

  'carries two commit loops that append to one session at once': async ({ store, other }, { clock }) => {
    const loopOn = (each: CommitStore) => new CommitLoop({ store: each, clock });
    const loops = [loopOn(store), loopOn(other)] as const;
    await loops[0].submit(SESSION, createCommand());
    const outcomes = await Promise.all(
      times(200, (i) => loops[i % 2 ? 1 : 0].submit(SESSION, messageCommand(`message ${i >> 1}`))),
    );
    assert.ok(outcomes.every((outcome) => outcome.ok));
    let before: Tip = START;
    const ids: string[] = [];
    for await (const document of store.range(SESSION, 1)) {
      assert.equal(document.c, before.head.c + 1);
      assert.equal(document.hash, hashOf(before.hash, document));
      ids.push(...document.commitIds);
      before = tipOf(document);
    }
    // Each message was sent twice, once to each loop.
    assert.equal(ids.length, 101);
    assert.equal(new Set(ids).size, 101);
  },
};

const START: Tip = { head: emptyHead(SESSION), hash: '' };

function times<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => make(index));
}

function counts(outcomes: string[]): Record<string, number> {
  const counted: Record<string, number> = {};
  for (const outcome of outcomes) counted[outcome] = (counted[outcome] ?? 0) + 1;
  return counted;
}

async function numbers(range: AsyncIterable<CommitDocument>): Promise<number[]> {
  const found: number[] = [];
  for await (const { c } of range) found.push(c);
  return found;
}

/** A session of so many commits, each with two commands and some events. */
function chain(length: number, sessionId = SESSION): CommitDocument[] {
  const documents: CommitDocument[] = [];
  let tip: Tip = { head: emptyHead(sessionId), hash: '' };
  for (let c = 1; c <= length; c++) {
    const document = successor(tip, [messageCommand(`first of ${c}`), messageCommand(`second of ${c}`)]);
    documents.push(document);
    tip = tipOf(document);
  }
  return documents;
}

type Five = [CommitDocument, CommitDocument, CommitDocument, CommitDocument, CommitDocument];

function five(): Five {
  return chain(5) as Five;
}

/** The commit that folds these commands over a tip; where there is no session yet, they follow its creation. */
function successor(tip: Tip, commands: Command[]): CommitDocument {
  const all = tip.head.c === 0 ? [createCommand(), ...commands] : commands;
  const { document } = fold(tip, all.map(hashed), START_MICROS + tip.head.c * 1_000_000);
  assert.ok(document);
  assert.equal(document._id, commitKey(tip.head.sessionId, tip.head.c + 1));
  return JSON.parse(JSON.stringify(document)) as CommitDocument;
}

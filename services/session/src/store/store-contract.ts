import assert from 'node:assert/strict';
import { performance } from 'node:perf_hooks';
import { commitStoreContract, type CommitStoreHarness, type ContractCase } from '@margay/log';
import type { Collection, Db } from 'mongodb';
import { MongoBlobStore } from '../commits/mongo-blob-store';
import { MongoCommitStore } from '../commits/mongo-commit-store';
import { SystemClock } from '../commits/system-clock';

/** A database of the checks' own, empty at first, as two clients see it. */
export interface ContractDatabases {
  db: Db;
  other: Db;
}

export interface StoreContractOptions {
  /** Documents of the collection that is read in ranges; default 50,000. */
  longRange?: number;
  /** Told how fast pages of it were read. */
  onRange?: (p95Ms: number) => void;
}

interface Row {
  _id: string;
  tenantId: string;
  n: number;
  text?: string;
}

const PAGE = 100;
const BATCH = 1_000;
const RANGE_READS = 100;
const MIB = 1024 * 1024;

/**
 * What the log, repositories and budgets rest on (docs/protocol.md §9): each check rejects where the store does not keep it.
 * Crashes are not among them; they have a spec of their own, since nobody's store is killed to ask it.
 */
export function storeContract(open: () => ContractDatabases, options: StoreContractOptions = {}): ContractCase[] {
  const ofLog = commitStoreContract(() => commitStores(open()), { clock: new SystemClock() });
  return [...ofLog, ...rowContract(open, options), blobRanges(open)];
}

async function commitStores({ db, other }: ContractDatabases): Promise<CommitStoreHarness> {
  const [first, second] = [commitStoreIn(db), commitStoreIn(other)];
  await first.createIndexes();
  return { store: first, other: second, close: async () => db.collection('commits').deleteMany({}) };
}

function commitStoreIn(db: Db): MongoCommitStore {
  return new MongoCommitStore(db.collection('commits'), db.collection('sessions'));
}

function rowContract(open: () => ContractDatabases, options: StoreContractOptions): ContractCase[] {
  const rows = () => open().db.collection<Row>('contractRows');
  const otherRows = () => open().other.collection<Row>('contractRows');
  const either = (index: number): Collection<Row> => (index % 2 ? rows() : otherRows());
  return [
    {
      title: 'lets 200 conditional decrements of 50 leave 0',
      async check() {
        await rows().insertOne({ _id: 'budget', tenantId: 't', n: 50 });
        const filter = { _id: 'budget', n: { $gte: 1 } };
        const taken = await Promise.all(times(200, (i) => either(i).updateOne(filter, { $inc: { n: -1 } })));
        assert.equal(taken.filter(({ matchedCount }) => matchedCount === 1).length, 50);
        assert.equal((await otherRows().findOne({ _id: 'budget' }))?.n, 0);
      },
    },
    {
      title: 'adds up 200 concurrent increments',
      async check() {
        await rows().insertOne({ _id: 'counter', tenantId: 't', n: 0 });
        await Promise.all(times(200, (i) => either(i).updateOne({ _id: 'counter' }, { $inc: { n: 1 } })));
        assert.equal((await otherRows().findOne({ _id: 'counter' }))?.n, 200);
      },
    },
    {
      title: 'lets one of 50 writers of a revision win',
      async check() {
        await rows().insertOne({ _id: 'revision', tenantId: 't', n: 7 });
        const change = (i: number) => ({ $set: { n: 8, text: String(i) } });
        const written = await Promise.all(times(50, (i) => either(i).updateOne({ _id: 'revision', n: 7 }, change(i))));
        assert.equal(written.filter(({ matchedCount }) => matchedCount === 1).length, 1);
      },
    },
    { title: 'reads pages of a long range, each whole and in order', check: () => pagesOfRange(rows(), options) },
  ];
}

async function pagesOfRange(rows: Collection<Row>, { longRange = 50_000, onRange }: StoreContractOptions) {
  const key = (n: number): string => `s.${String(n).padStart(10, '0')}`;
  const text = 'x'.repeat(500);
  for (let from = 0; from < longRange; from += BATCH) {
    const batch = times(BATCH, (i) => ({ _id: key(from + i), tenantId: 't', n: from + i, text }));
    await rows.insertMany(batch, { ordered: false });
  }
  const tookMs: number[] = [];
  for (let i = 0; i < RANGE_READS; i++) {
    const from = (i * 497) % (longRange - PAGE);
    const startedMs = performance.now();
    const range = { _id: { $gte: key(from), $lte: key(from + PAGE - 1) } };
    const page = await rows.find(range).sort({ _id: 1 }).toArray();
    tookMs.push(performance.now() - startedMs);
    assert.deepEqual(
      page.map(({ n }) => n),
      times(PAGE, (n) => from + n),
    );
  }
  onRange?.(tookMs.toSorted((a, b) => a - b)[Math.floor(RANGE_READS * 0.95) - 1] ?? 0);
}

function blobRanges(open: () => ContractDatabases): ContractCase {
  return {
    title: 'reads ranges of a blob, also across its pieces',
    async check() {
      const { db, other } = open();
      const [blobs, readers] = [new MongoBlobStore(db), new MongoBlobStore(other)];
      await blobs.createIndexes();
      const bytes = Buffer.alloc(MIB, 'margay ');
      const id = await blobs.put('t', bytes);
      for (const [start, end] of [
        [0, 10],
        [261_119, 261_125],
        [300_000, 900_000],
        [MIB - 5, MIB],
      ] as const) {
        // prettier-ignore
        const read: Buffer[] = [];
        for await (const piece of readers.read('t', id, start, end)) read.push(piece);
        assert.ok(Buffer.concat(read).equals(bytes.subarray(start, end)), `bytes ${start} to ${end} differ`);
      }
    },
  };
}

function times<T>(count: number, make: (index: number) => T): T[] {
  return Array.from({ length: count }, (_, index) => make(index));
}

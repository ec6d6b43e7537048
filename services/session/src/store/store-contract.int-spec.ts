import { MongoBlobStore } from '../commits/mongo-blob-store';
import { LeaseRepository } from '@margay/platform';
import { RealStore, times } from '../spec/real-store';
import { Projector } from './project';
import { storeContract, type StoreContractOptions } from './store-contract';

interface Row {
  _id: string;
  tenantId: string;
  c: number;
  text?: string;
}

const LONG_RANGE = 50_000;
/** The development store that is written in Python takes minutes to write the other. */
const SHORT_RANGE = 5_000;

const real = new RealStore();
const rows = (name: string) => real.db.collection<Row>(name);
const otherRows = (name: string) => real.otherDb.collection<Row>(name);
const bothRows = (name: string, index: number) => (index % 2 ? rows(name) : otherRows(name));

beforeAll(() => real.start(), 300_000);
afterAll(() => real.stop());

/** The promises of docs/protocol.md §9; `margay doctor` asks the store of an installation the same. */
describe('the document store', () => {
  const contract = new RealStore({ isAlone: true });
  const options: StoreContractOptions = {
    onRange: (p95Ms) =>
      void process.stdout.write(`range of 100 of ${options.longRange} documents: p95 ${p95Ms.toFixed(1)} ms\n`),
  };
  beforeAll(async () => {
    await contract.start();
    options.longRange = contract.engine === 'secantusd-py' ? SHORT_RANGE : LONG_RANGE;
  }, 300_000);
  afterAll(() => contract.stop());

  const databases = () => ({ db: contract.db, other: contract.otherDb });
  it.each(storeContract(databases, options))('$title', ({ check }) => check(), 120_000);
});

describe('a projection', () => {
  it('ends at the newest of 50 states that are written at once, first or not', async () => {
    for (const first of ['absent', 'present']) {
      if (first === 'present') await rows('projected').insertOne({ _id: first, tenantId: 't', c: 1 });
      await Promise.all(
        times(50, (i) =>
          new Projector(bothRows('projected', i)).project({ _id: first, tenantId: 't', c: i + 2, text: `${i + 2}` }),
        ),
      );
      expect(await rows('projected').findOne({ _id: first })).toMatchObject({ c: 51, text: '51' });
    }
  });

  it('is never overwritten by an older state', async () => {
    await new Projector(rows('projected')).project({ _id: 'x', tenantId: 't', c: 5, text: 'new' });
    await new Projector(rows('projected')).project({ _id: 'x', tenantId: 't', c: 4, text: 'old' });
    await new Projector(rows('projected')).project({ _id: 'x', tenantId: 't', c: 5, text: 'same number' });
    expect(await rows('projected').findOne({ _id: 'x' })).toMatchObject({ c: 5, text: 'new' });
  });
});

describe('a lease', () => {
  it('is held by one of ten replicas, which may renew it, and goes on when it is released', async () => {
    const replicas = times(
      10,
      (i) => new LeaseRepository((i % 2 ? real.db : real.otherDb).collection('leases'), `${i}`),
    );
    const held = await Promise.all(replicas.map((leases) => leases.hold('job', 60_000)));
    expect(held.filter(Boolean)).toHaveLength(1);
    const owner = replicas[held.indexOf(true)];
    const other = replicas[held.indexOf(false)];
    expect(await owner?.hold('job', 60_000)).toBe(true);
    await other?.release('job');
    expect(await other?.hold('job', 60_000)).toBe(false);
    await owner?.release('job');
    expect(await other?.hold('job', 60_000)).toBe(true);
    expect(await owner?.hold('job', 60_000)).toBe(false);
  });

  it('that has run out is taken by one of ten', async () => {
    const replicas = times(
      10,
      (i) => new LeaseRepository((i % 2 ? real.db : real.otherDb).collection('leases'), `${i}`),
    );
    await new LeaseRepository(real.db.collection('leases'), 'gone').hold('late', -1);
    const held = await Promise.all(replicas.map((leases) => leases.hold('late', 60_000)));
    expect(held.filter(Boolean)).toHaveLength(1);
  });
});

describe('a blob', () => {
  // One, as in the service: each new one looks after its indexes when it is first written to.
  let blobs: MongoBlobStore;
  beforeAll(async () => {
    blobs = new MongoBlobStore(real.db);
    await blobs.createIndexes();
  });

  const read = async (id: string, start: number, end?: number): Promise<string> => {
    const chunks: Buffer[] = [];
    for await (const chunk of blobs.read('t', id, start, end)) chunks.push(chunk);
    return Buffer.concat(chunks).toString();
  };

  it('is read in ranges, also across chunks', async () => {
    const text = times(100_000, (i) => String(i).padStart(6, '0')).join('');
    const id = await blobs.put('t', Buffer.from(text));
    for (const [start, end] of [
      [0, 10],
      [261_119, 261_125],
      [599_990, 600_000],
      [300_000, 560_000],
    ] as const)
      expect(await read(id, start, end)).toBe(text.slice(start, end));
    expect(await blobs.size('t', id)).toBe(600_000);
  });

  it('is one for equal bytes, and unknown to another tenant', async () => {
    const put = times(5, () => blobs.put('t', Buffer.from('the same')));
    const [id = ''] = await Promise.all(put);
    expect(new Set(await Promise.all(put)).size).toBe(1);
    expect(await read(id, 0)).toBe('the same');
    for (const ask of [() => blobs.size('u', id), () => blobs.get('u', id)])
      await expect(ask()).rejects.toMatchObject({ reason: 'blob_not_found' });
  });
});

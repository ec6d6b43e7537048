import { performance } from 'node:perf_hooks';
import { MongoBlobStore } from '../commits/mongo-blob-store';
import { LeaseRepository } from '@margay/platform';
import { RealStore, times } from '../spec/real-store';
import { Projector } from './project';

interface Row {
  _id: string;
  tenantId: string;
  c: number;
  text?: string;
  left?: number;
  rev?: number;
}

const real = new RealStore();
const rows = (name: string) => real.db.collection<Row>(name);
const otherRows = (name: string) => real.otherDb.collection<Row>(name);
const bothRows = (name: string, index: number) => (index % 2 ? rows(name) : otherRows(name));

beforeAll(() => real.start(), 300_000);
afterAll(() => real.stop());

/** What repositories and budgets rest on, beside the log itself (docs/protocol.md §9). */
describe('the document store', () => {
  it('lets 200 conditional decrements of 50 leave 0', async () => {
    await rows('budgets').insertOne({ _id: 'b', tenantId: 't', c: 1, left: 50 });
    const taken = await Promise.all(
      times(200, (i) => bothRows('budgets', i).updateOne({ _id: 'b', left: { $gte: 1 } }, { $inc: { left: -1 } })),
    );
    expect(taken.filter(({ matchedCount }) => matchedCount === 1)).toHaveLength(50);
    expect(await rows('budgets').findOne({ _id: 'b' })).toMatchObject({ left: 0 });
  });

  it('adds up 200 concurrent increments', async () => {
    await rows('counters').insertOne({ _id: 'n', tenantId: 't', c: 0 });
    await Promise.all(times(200, (i) => bothRows('counters', i).updateOne({ _id: 'n' }, { $inc: { c: 1 } })));
    expect(await otherRows('counters').findOne({ _id: 'n' })).toMatchObject({ c: 200 });
  });

  it('lets one of 50 writers of a revision win', async () => {
    await rows('revs').insertOne({ _id: 'r', tenantId: 't', c: 1, rev: 7 });
    const written = await Promise.all(
      times(50, (i) => bothRows('revs', i).updateOne({ _id: 'r', rev: 7 }, { $set: { rev: 8, text: String(i) } })),
    );
    expect(written.filter(({ matchedCount }) => matchedCount === 1)).toHaveLength(1);
  });

  it('reads pages of a long range; how fast is printed', async () => {
    const key = (n: number): string => `s.${String(n).padStart(10, '0')}`;
    for (let from = 0; from < 50_000; from += 1_000)
      await rows('long').insertMany(
        times(1_000, (i) => ({ _id: key(from + i), tenantId: 't', c: from + i, text: 'x'.repeat(500) })),
      );
    const tookMs: number[] = [];
    for (let i = 0; i < 100; i++) {
      const from = (i * 497) % 49_900;
      const startedMs = performance.now();
      const page = await rows('long')
        .find({ _id: { $gte: key(from), $lte: key(from + 99) } })
        .sort({ _id: 1 })
        .toArray();
      tookMs.push(performance.now() - startedMs);
      expect(page.map(({ c }) => c)).toEqual(times(100, (n) => from + n));
    }
    const p95 = tookMs.toSorted((a, b) => a - b)[94] ?? 0;
    process.stdout.write(`range of 100 of 50,000 documents: p95 ${p95.toFixed(1)} ms\n`);
  }, 120_000);
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
    for (const ask of [blobs.size('u', id), blobs.get('u', id)])
      await expect(ask).rejects.toMatchObject({ reason: 'blob_not_found' });
  });
});

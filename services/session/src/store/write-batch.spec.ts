import type { AnyBulkWriteOperation, BulkWriteResult } from 'mongodb';
import { WriteBatch, type BulkWriter } from './write-batch';

interface Row {
  _id: string;
  c: number;
}

class FakeRows implements BulkWriter<Row> {
  readonly batches: AnyBulkWriteOperation<Row>[][] = [];
  failure: unknown;

  bulkWrite(operations: AnyBulkWriteOperation<Row>[]): Promise<BulkWriteResult> {
    this.batches.push(operations);
    return this.failure === undefined ? Promise.resolve({} as BulkWriteResult) : Promise.reject(this.failure as Error);
  }
}

const rows = () => new FakeRows();
const write = (_id: string, c: number): AnyBulkWriteOperation<Row> => ({ insertOne: { document: { _id, c } } });

it('sends what comes together in one batch', async () => {
  const fake = rows();
  const batch = new WriteBatch<Row>(fake);
  await Promise.all([batch.add('a', 1, write('a', 1)), batch.add('b', 1, write('b', 1))]);
  expect(fake.batches).toEqual([[write('a', 1), write('b', 1)]]);
});

it('writes only the newest state of one thing, and tells all who waited', async () => {
  const fake = rows();
  const batch = new WriteBatch<Row>(fake);
  await Promise.all([
    batch.add('a', 2, write('a', 2)),
    batch.add('a', 3, write('a', 3)),
    batch.add('a', 1, write('a', 1)),
  ]);
  expect(fake.batches).toEqual([[write('a', 3)]]);
});

it('tells each write its own failure', async () => {
  const fake = rows();
  const duplicate = { index: 1, code: 11_000 };
  fake.failure = { writeErrors: [duplicate], result: {} };
  const batch = new WriteBatch<Row>(fake);
  const outcomes = await Promise.allSettled([batch.add('a', 1, write('a', 1)), batch.add('b', 1, write('b', 1))]);
  expect(outcomes).toEqual([
    { status: 'fulfilled', value: undefined },
    { status: 'rejected', reason: duplicate },
  ]);
});

it('fails all where the store did not answer', async () => {
  const fake = rows();
  fake.failure = new Error('no store');
  const batch = new WriteBatch<Row>(fake);
  const outcomes = await Promise.allSettled([batch.add('a', 1, write('a', 1)), batch.add('b', 1, write('b', 1))]);
  expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
});

it('goes on after a batch that failed', async () => {
  const fake = rows();
  fake.failure = new Error('no store');
  const batch = new WriteBatch<Row>(fake);
  await expect(batch.add('a', 1, write('a', 1))).rejects.toThrow('no store');
  fake.failure = undefined;
  await batch.add('a', 1, write('a', 1));
  expect(fake.batches).toHaveLength(2);
});

import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openStore, TEST_SOURCES, type OpenStore } from '@margay/launcher';
import { FakeS3 } from '@margay/testing';
import { ObjectId, type Db } from 'mongodb';
import { createLogger } from '../logging/logger';
import { MongoConnection } from '../mongo/mongo-connection';
import { BlobConfig } from './blob-config';
import type { Chunks, ObjectStore } from './object-store';
import { openObjects } from './open-objects';
import { StoredFiles } from './stored-files';

const DAYS_MS = 2 * 24 * 3_600_000;

describe('stored files', () => {
  const fake = new FakeS3();
  let directory: string;
  let server: OpenStore;
  let mongo: MongoConnection;
  let db: Db;
  let objects: ObjectStore | undefined;
  let inBucket: StoredFiles;
  let inPieces: StoredFiles;

  beforeAll(async () => {
    directory = await mkdtemp(join(tmpdir(), 'margay-files-'));
    server = await openStore({ directory, allow: TEST_SOURCES });
    const database = `spec_${randomBytes(6).toString('hex')}`;
    mongo = new MongoConnection({ url: server.url, database, logger: createLogger({ level: 'off' }), name: 'spec' });
    await mongo.ready(30_000);
    db = mongo.connection.db as unknown as Db;
    await fake.start();
    objects = await openObjects(
      BlobConfig.parse({
        MARGAY_BLOB_DRIVER: 's3',
        MARGAY_S3_ENDPOINT: fake.url,
        MARGAY_S3_BUCKET: fake.bucket,
        MARGAY_S3_ACCESS_KEY_ID: fake.accessKeyId,
        MARGAY_S3_SECRET_ACCESS_KEY: 'spec-secret',
      }),
    );
    [inBucket, inPieces] = [new StoredFiles(db, 'spec', { objects }), new StoredFiles(db, 'spec')];
    await inBucket.createIndexes();
  }, 600_000);
  afterAll(async () => {
    objects?.close();
    await fake.stop();
    await mongo?.connection.dropDatabase();
    await mongo?.close();
    await server?.stop();
    await rm(directory, { recursive: true, force: true });
  });
  beforeEach(async () => {
    fake.refuse = () => undefined;
    fake.objects.clear();
    for (const name of ['files', 'chunks', 'unfinished']) await db.collection(`spec.${name}`).deleteMany({});
  });

  const of = { tenantId: 'a/b', filename: 'f' };
  const count = (name: string) => db.collection(`spec.${name}`).countDocuments();

  async function* pieces(bytes: Buffer, isBroken = false): Chunks {
    for (let at = 0; at < bytes.length; at += 100_000) yield bytes.subarray(at, at + 100_000);
    if (isBroken) throw new Error('the sender is gone');
  }

  async function read(files: StoredFiles, _id: ObjectId, start?: number, end?: number): Promise<Buffer> {
    const file = await files.files.findOne({ _id });
    if (!file) throw new Error('a file expected');
    const parts: Buffer[] = [];
    for await (const part of files.read(file, start, end)) parts.push(part);
    return Buffer.concat(parts);
  }

  it('are read from where they are, whatever the driver is now', async () => {
    const bytes = randomBytes(600_000);
    const old = await inPieces.write(of, pieces(bytes));
    const recent = await inBucket.write(of, pieces(bytes));
    expect([fake.objects.size, await count('files'), await count('unfinished')]).toEqual([1, 2, 0]);
    for (const _id of [old, recent]) {
      expect((await read(inBucket, _id)).equals(bytes)).toBe(true);
      expect((await read(inBucket, _id, 299_999, 300_001)).equals(bytes.subarray(299_999, 300_001))).toBe(true);
      expect(await read(inBucket, _id, 600_000)).toHaveLength(0);
    }
    for (const _id of [old, recent]) await inBucket.remove(_id);
    expect([fake.objects.size, await count('files'), await count('chunks')]).toEqual([0, 0, 0]);
  });

  it('of a tenant lie below a prefix of their own', async () => {
    const _id = await inBucket.write(of, pieces(Buffer.from('text')));
    expect([...fake.objects.keys()]).toEqual([`${db.databaseName}/a%2Fb/spec/${_id.toHexString()}`]);
  });

  it('say which variable is missing where they are in a bucket', async () => {
    const _id = await inBucket.write(of, pieces(Buffer.from('text')));
    const failure = { reason: 'blob_store_missing', message: expect.stringContaining('MARGAY_BLOB_DRIVER') as string };
    await expect(read(inPieces, _id)).rejects.toMatchObject(failure);
    await expect(inPieces.remove(_id)).rejects.toMatchObject(failure);
    expect((await read(inBucket, _id)).toString()).toBe('text');
  });

  it('are none where the sender breaks off', async () => {
    for (const files of [inPieces, inBucket])
      await expect(files.write(of, pieces(randomBytes(300_000), true))).rejects.toThrow('the sender is gone');
    // A piece that was on its way may have come after its end.
    await inBucket.collect(Date.now() + DAYS_MS);
    expect([fake.objects.size, await count('files'), await count('chunks'), await count('unfinished')]).toEqual([
      0, 0, 0, 0,
    ]);
  });

  it('of a process that ended are collected, with their parts, once their driver is there', async () => {
    const [_id, objectKey] = [new ObjectId(), `${db.databaseName}/t/spec/lost`];
    fake.objects.set(objectKey, Buffer.from('lost'));
    fake.uploads.set('u', { key: objectKey, parts: new Map() });
    await db.collection('spec.unfinished').insertOne({ _id, objectKey, at: new Date(Date.now() - DAYS_MS) });
    expect(await inPieces.collect()).toBe(0);
    expect(await inBucket.collect()).toBe(1);
    expect([fake.objects.size, fake.uploads.size, await count('unfinished')]).toEqual([0, 0, 0]);
  });

  it('of a bucket are passed over by whoever does not know it', async () => {
    await inBucket.write(of, pieces(Buffer.from('text')));
    const old = await inPieces.write(of, pieces(Buffer.from('text')));
    expect((await inPieces.files.find(inPieces.reachable).toArray()).map(({ _id }) => _id)).toEqual([old]);
    expect(await inBucket.files.countDocuments(inBucket.reachable)).toBe(2);
  });

  it('stay where their last note was left behind', async () => {
    const _id = await inBucket.write(of, pieces(Buffer.from('text')));
    const file = await inBucket.files.findOne({ _id });
    const note = { _id, objectKey: file?.objectKey, at: new Date(Date.now() - DAYS_MS) };
    await db.collection('spec.unfinished').insertOne(note);
    await inBucket.collect();
    expect((await read(inBucket, _id)).toString()).toBe('text');
  });

  it('whose object could not be removed go with the next collection', async () => {
    const _id = await inBucket.write(of, pieces(Buffer.from('text')));
    fake.refuse = ({ method }) => (method === 'DELETE' ? { status: 403, code: 'AccessDenied' } : undefined);
    await expect(inBucket.remove(_id)).rejects.toMatchObject({ reason: 'blob_store_denied' });
    expect([await count('files'), fake.objects.size]).toEqual([0, 1]);
    fake.refuse = () => undefined;
    await inBucket.collect(Date.now() + DAYS_MS);
    expect([fake.objects.size, await count('unfinished')]).toEqual([0, 0]);
  });
});

import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openStore, TEST_SOURCES, type OpenStore } from '@margay/launcher';
import { createLogger } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import { ObjectId, type Db } from 'mongodb';
import { MongoArchiveStore } from '../snapshots/mongo-archive-store';
import { UploadStore } from './upload-store';

const of = { tenantId: 't1', workspaceId: 'a'.repeat(32), filename: 'a.tar' };
const DAYS_MS = 2 * 24 * 3_600_000;

describe('what is being stored', () => {
  let directory: string;
  let server: OpenStore;
  let mongo: MongoConnection;
  let db: Db;
  let uploads: UploadStore;

  beforeAll(async () => {
    directory = await mkdtemp(path.join(tmpdir(), 'margay-uploads-'));
    server = await openStore({ directory, allow: TEST_SOURCES });
    const database = `spec_${randomBytes(6).toString('hex')}`;
    mongo = new MongoConnection({ url: server.url, database, logger: createLogger({ level: 'off' }), name: 'spec' });
    await mongo.ready(30_000);
    db = mongo.connection.db as unknown as Db;
    uploads = new UploadStore(db);
    await uploads.createIndexes();
  }, 600_000);
  afterAll(async () => {
    await mongo?.connection.dropDatabase();
    await mongo?.close();
    await server?.stop();
    await rm(directory, { recursive: true, force: true });
  });

  beforeEach(async () => {
    await db.collection('workspaceUploads.unfinished').deleteMany({});
  });

  const count = (collection: string) => db.collection(collection).countDocuments();

  async function* pieces(isBroken = false): AsyncIterable<Uint8Array> {
    for (let left = 3; left > 0; left -= 1) yield randomBytes(300_000);
    if (isBroken) throw new Error('the sender is gone');
  }

  it('is found by its bytes through an index', async () => {
    const { sha256, fileId } = await uploads.put(of, pieces());
    expect(await uploads.findBySha256(sha256)).toMatchObject({ fileId, sha256 });
    const keys = (await db.collection('workspaceUploads.files').indexes()).map(({ key }) => Object.keys(key)[0]);
    expect(keys).toContain('metadata.sha256');
    await uploads.remove([fileId]);
  });

  it('leaves no bytes when its sender breaks off', async () => {
    await expect(uploads.put(of, pieces(true))).rejects.toThrow();
    // A piece that was on its way may have come after its end.
    await uploads.collect(Date.now() + DAYS_MS);
    expect([await count('workspaceUploads.files'), await count('workspaceUploads.chunks')]).toEqual([0, 0]);
  });

  it.each(['workspaceUploads', 'archives'])(
    'is removed from %s when the process ended in the midst of it',
    async (name) => {
      const lost = new ObjectId();
      await db.collection(`${name}.chunks`).insertOne({ files_id: lost, n: 0, data: randomBytes(10) });
      const unfinished = db.collection<{ _id: ObjectId; at: Date }>(`${name}.unfinished`);
      await unfinished.insertOne({ _id: lost, at: new Date(Date.now() - DAYS_MS) });
      // One that is under way is left alone.
      const other = new ObjectId();
      await db.collection(`${name}.chunks`).insertOne({ files_id: other, n: 0, data: randomBytes(10) });
      await unfinished.insertOne({ _id: other, at: new Date() });

      await (name === 'archives' ? new MongoArchiveStore(db) : uploads).collect();
      expect([await count(`${name}.chunks`), await count(`${name}.unfinished`)]).toEqual([1, 1]);
      await db.collection(`${name}.chunks`).deleteMany({ files_id: other });
      await unfinished.deleteMany({});
    },
  );

  /** A process that ends before the bytes of a file go. */
  function dying(): Db {
    const bound = (of: object, name: string | symbol): unknown => {
      const value: unknown = Reflect.get(of, name, of);
      return typeof value === 'function' ? (value.bind(of) as unknown) : value;
    };
    const end = () => Promise.reject(new Error('the process has ended'));
    const chunks = (of: object) => new Proxy(of, { get: (_, name) => (name === 'deleteMany' ? end : bound(of, name)) });
    const collection = (name: string) => (name.endsWith('.chunks') ? chunks(db.collection(name)) : db.collection(name));
    return new Proxy(db, { get: (_, name) => (name === 'collection' ? collection : bound(db, name)) });
  }

  it('is removed when the process ended while it was being removed', async () => {
    const { fileId } = await uploads.put(of, pieces());
    await expect(new UploadStore(dying()).remove([fileId])).rejects.toThrow();
    const owner = { tenantId: 't1', workspaceId: 'a'.repeat(32) };
    const facts = { n: 1, base: 0, entries: 0, deleted: [], bytes: 1, sha256: '', revision: '', at: new Date() };
    const archives = new MongoArchiveStore(db);
    const archive = await archives.put(owner, pieces(), () => ({ ...owner, ...facts }));
    await expect(new MongoArchiveStore(dying()).remove(archive)).rejects.toThrow();

    for (const [name, store] of Object.entries({ workspaceUploads: uploads, archives })) {
      expect([await count(`${name}.files`), await count(`${name}.chunks`)]).toEqual([0, expect.any(Number)]);
      await store.collect(Date.now() + DAYS_MS);
      expect([await count(`${name}.chunks`), await count(`${name}.unfinished`)]).toEqual([0, 0]);
    }
  });

  it('stays once it is whole, and is known as such', async () => {
    const { fileId, bytes } = await uploads.put(of, pieces());
    expect(await count('workspaceUploads.unfinished')).toBe(0);
    await uploads.collect();
    expect(await uploads.read(fileId, 0, bytes)).toHaveLength(900_000);
  });
});

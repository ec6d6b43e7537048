import { createHash, randomBytes } from 'node:crypto';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openStore, TEST_SOURCES, type OpenStore } from '@margay/launcher';
import { createLogger } from '@margay/platform';
import { BlobConfig, openObjects, type ObjectStore } from '@margay/platform/files';
import { MongoConnection } from '@margay/platform/mongo';
import { FakeS3, realBucket, type RealBucket } from '@margay/testing';
import type { Archive, ArchiveStore, Chunks } from './archive-store';
import { FileArchiveStore } from './file-archive-store';
import { MongoArchiveStore } from './mongo-archive-store';

const owner = { tenantId: 't/1', workspaceId: 'a'.repeat(32) };
const archiveOf = (n: number, bytes: Buffer, more: Partial<Archive> = {}): Archive => ({
  ...owner,
  n,
  base: n - 1,
  entries: 3,
  deleted: ['gone', '\0/+8='],
  bytes: bytes.length,
  sha256: createHash('sha256').update(bytes).digest('hex'),
  revision: 'r',
  at: new Date(1_900_000_000_000),
  ...more,
});

async function* pieces(bytes: Buffer): Chunks {
  for (let at = 0; at < bytes.length; at += 100_000) yield bytes.subarray(at, at + 100_000);
}

async function whole(chunks: Chunks): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  for await (const chunk of chunks) parts.push(chunk);
  return Buffer.concat(parts);
}

/** What every store of archives keeps. */
function describeStore(name: string, open: () => Promise<{ store: ArchiveStore; close: () => Promise<void> }>): void {
  describe(`the archive store ${name}`, () => {
    let store: ArchiveStore;
    let close: () => Promise<void>;
    beforeAll(async () => ({ store, close } = await open()), 600_000);
    afterAll(() => close());
    beforeEach(async () => {
      for (const archive of await store.list(owner)) await store.remove(archive);
    });
    const put = (n: number, bytes: Buffer, more: Partial<Archive> = {}) =>
      store.put({ ...owner, ...more }, pieces(bytes), () => archiveOf(n, bytes, more));

    it('gives back the bytes and all that is known of them, in the order of numbers', async () => {
      const bytes = randomBytes(1_500_000);
      await put(10, randomBytes(10));
      await put(9, bytes);
      await put(1, Buffer.from('first'), { base: 0 });
      const archives = await store.list(owner);
      expect(archives.map(({ n }) => n)).toEqual([1, 9, 10]);
      expect(archives[1]).toEqual(archiveOf(9, bytes));
      expect((await whole(store.read(archives[1] as Archive))).equals(bytes)).toBe(true);
    });

    it('gives a number once, whether to a full archive or to a delta', async () => {
      await put(1, Buffer.from('first'), { base: 0 });
      await put(2, Buffer.from('second'), { base: 0 });
      await expect(put(2, Buffer.from('other'), { base: 1 })).rejects.toMatchObject({ reason: 'archive_exists' });
      expect((await store.list(owner)).map(({ n, base }) => [n, base])).toEqual([
        [1, 0],
        [2, 0],
      ]);
    });

    it('shows an archive only when all of it is there', async () => {
      async function* broken(): Chunks {
        yield Buffer.from('half');
        throw new Error('it broke off');
      }
      const bytes = Buffer.from('half');
      await expect(store.put(owner, broken(), () => archiveOf(1, bytes))).rejects.toThrow('it broke off');
      const refused = store.put(owner, pieces(bytes), () => {
        throw new Error('its hash is wrong');
      });
      await expect(refused).rejects.toThrow('its hash is wrong');
      expect(await store.list(owner)).toEqual([]);
    });

    it('gives a number away once', async () => {
      const results = await Promise.allSettled([put(1, Buffer.from('one')), put(1, Buffer.from('two'))]);
      expect(results.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
      expect(results.find((end) => end.status === 'rejected')?.reason).toMatchObject({ reason: 'archive_exists' });
      expect(await store.list(owner)).toHaveLength(1);
    });

    it('removes one archive and leaves those of others', async () => {
      await put(1, Buffer.from('mine'));
      await put(1, Buffer.from('theirs'), { tenantId: 't/12' });
      const [mine] = await store.list(owner);
      await store.remove(mine as Archive);
      await store.remove(mine as Archive);
      expect(await store.list(owner)).toEqual([]);
      await expect(whole(store.read(mine as Archive))).rejects.toMatchObject({ reason: 'archive_missing' });
      expect(await store.list({ ...owner, tenantId: 't/12' })).toHaveLength(1);
    });
  });
}

describeStore('in files', async () => {
  const base = await mkdtemp(path.join(tmpdir(), 'margay-archives-'));
  const store = new FileArchiveStore(path.join(base, 'archives'));
  return { store, close: () => rm(base, { recursive: true, force: true }) };
});

/** @param objects where bytes go, if not into GridFS */
async function openInStore(objects?: ObjectStore): Promise<{ store: ArchiveStore; close: () => Promise<void> }> {
  const directory = await mkdtemp(path.join(tmpdir(), 'margay-store-'));
  const server: OpenStore = await openStore({ directory, allow: TEST_SOURCES });
  const database = `spec_${randomBytes(6).toString('hex')}`;
  const mongo = new MongoConnection({
    url: server.url,
    database,
    logger: createLogger({ level: 'off' }),
    name: 'spec',
  });
  await mongo.ready(30_000);
  const { db } = mongo.connection;
  if (!db) throw new Error('not connected');
  const store = new MongoArchiveStore(db, undefined, objects);
  await store.createIndexes();
  const close = async () => {
    await mongo.connection.dropDatabase();
    await mongo.close();
    await server.stop();
    objects?.close();
    await rm(directory, { recursive: true, force: true });
  };
  return { store, close };
}

const openBucket = (at: RealBucket) =>
  openObjects(
    BlobConfig.parse({
      MARGAY_BLOB_DRIVER: 's3',
      MARGAY_S3_ENDPOINT: at.endpoint,
      MARGAY_S3_BUCKET: at.bucket,
      MARGAY_S3_ACCESS_KEY_ID: at.accessKeyId,
      MARGAY_S3_SECRET_ACCESS_KEY: at.secretAccessKey,
    }),
  );

describeStore('in GridFS', () => openInStore());

const fake = new FakeS3();
describeStore('in a bucket', async () => {
  await fake.start();
  const { bucket, accessKeyId, url: endpoint } = fake;
  const { store, close } = await openInStore(
    await openBucket({ endpoint, bucket, accessKeyId, secretAccessKey: 'spec-secret' }),
  );
  return {
    store,
    close: async () => {
      // Each test has removed what the one before it left: what is here belongs to records.
      const left = (await store.list({ ...owner, tenantId: 't/12' })).length + (await store.list(owner)).length;
      expect([fake.objects.size, fake.uploads.size]).toEqual([left, 0]);
      for (const key of fake.objects.keys()) expect(key).toMatch(/^spec_[0-9a-f]+\/t%2F12?\/archives\/[0-9a-f]{24}$/);
      await close();
      await fake.stop();
    },
  };
});

const real = realBucket();
// Not part of `npm test`, see tools/test-s3.mjs.
if (real) describeStore('in a bucket of a real server', async () => openInStore(await openBucket(real)));

it('takes the place of bytes that a crash left without a manifest', async () => {
  const base = await mkdtemp(path.join(tmpdir(), 'margay-archives-'));
  const store = new FileArchiveStore(base);
  const put = (text: string) => store.put(owner, pieces(Buffer.from(text)), () => archiveOf(2, Buffer.from(text)));
  await put('one');
  const names = await readdir(base, { recursive: true });
  await rm(path.join(base, names.find((name) => name.endsWith('.json')) ?? ''));
  expect(await store.list(owner)).toEqual([]);
  expect((await whole(store.read(await put('two')))).toString()).toBe('two');
  await rm(base, { recursive: true, force: true });
});

import { randomBytes } from 'node:crypto';
import { appendFile, mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import os, { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { acceptCommand, createCommand, FakeS3, hashed, messageCommand } from '@margay/testing';
import { emptyHead, fold, tipOf, type Command, type Tip } from '@margay/log';
import { BlobConfig, createLogger } from '@margay/platform';
import { openObjects, StoredFiles, type ObjectStore, type StoredFile } from '@margay/platform/files';
import { MongoClient, type Db } from 'mongodb';
import { MongoBlobStore } from '../commits/mongo-blob-store';
import { MongoCommitStore } from '../commits/mongo-commit-store';
import { RealStore, times } from '../spec/real-store';
import { backupAgeMs, noteBackup } from './backup-age';
import { readManifest } from './backup-format';
import { checkBackup } from './check-backup';
import { restoreBackup, type RestoreOptions } from './restore-backup';
import { writeBackup, type BackupOptions } from './write-backup';

// Whole stores are written and read several times, perhaps beside much else.
jest.setTimeout(600_000);

const logger = createLogger({ service: 'spec', level: 'off' });
const real = new RealStore();
let client: MongoClient;
let db: Db;
let store: MongoCommitStore;
let blobs: MongoBlobStore;
let folder: string;
let scratch: string;
let installations = 0;

beforeAll(async () => {
  await real.start();
  client = await new MongoClient(real.url, { runtimeAdapters: { os } }).connect();
  scratch = await mkdtemp(join(tmpdir(), 'margay-backup-'));
}, 300_000);
afterAll(async () => {
  await client.close();
  await real.stop();
  await rm(scratch, { recursive: true, force: true });
});
beforeEach(async () => {
  installations += 1;
  folder = join(scratch, `backup-${installations}`);
  db = client.db(`${real.db.databaseName}_${installations}_g0`);
  blobs = new MongoBlobStore(db);
  store = new MongoCommitStore(db.collection('commits'), db.collection('sessions'), blobs);
  await blobs.createIndexes();
  await store.createIndexes();
});
afterEach(async () => {
  const { databases } = await client.db('admin').admin().listDatabases({ nameOnly: true });
  const prefix = db.databaseName.slice(0, -1);
  for (const { name } of databases) if (name.startsWith(prefix)) await client.db(name).dropDatabase();
});

const claim = (sessionId: string): Command => ({ kind: 'claim', commitId: 'claim', runId: `${sessionId}:r1`, epoch: 1, owner: 'gone' }); // prettier-ignore

/** A session whose run is under way when nothing else is said, with a question that lies in a blob. */
async function session(id: string, more: (sessionId: string) => Command[] = () => []): Promise<string> {
  const sessionId = id.padStart(32, 'a');
  const textBlob = await blobs.put('tenant', Buffer.from(`long question of ${id}`.repeat(1_000)));
  let tip: Tip = { head: emptyHead(sessionId), hash: '' };
  const question = acceptCommand('question', { textBlob: { id: textBlob, bytes: 1 } } as never);
  for (const command of [createCommand(), question, ...more(sessionId)]) {
    const { document } = fold(tip, [hashed(command)], Date.now() * 1_000);
    if (!document) throw new Error('document expected');
    expect(await store.insert(document)).toBe('inserted');
    tip = tipOf(document);
  }
  return sessionId;
}

const backup = (options: Partial<BackupOptions> = {}) => writeBackup({ db, store, folder, ...options });
const restore = (options: Partial<RestoreOptions> = {}) =>
  restoreBackup({ client, database: db.databaseName, folder, quietMs: 300, logger, ...options });

async function contents(from: Db, name: string): Promise<string[]> {
  const found = await from.collection(name).find({}).sort({ _id: 1 }).toArray();
  return found.map((document) => JSON.stringify(document));
}

describe('a backup', () => {
  it('restored is the next generation, byte for byte, and each of its logs is in order', async () => {
    for (const id of ['1', '2', '3']) await session(id, (sessionId) => [claim(sessionId), { kind: 'cancel', commitId: 'cancel' }]); // prettier-ignore
    await db.collection<{ _id: string }>('tenants').insertOne({ _id: 'tenant', weight: 7, at: new Date(), odd: { n: 2.5 } } as never); // prettier-ignore
    const manifest = await backup();
    expect(await checkBackup(folder)).toEqual({ sessions: 3, commits: 12, blobs: 3, problems: [] });
    expect(manifest.documents).toMatchObject({ commits: 12, tenants: 1, 'fs.files': 3 });
    const restored = await restore();
    expect(restored).toEqual({ database: db.databaseName.replace('_g0', '_g1'), sessions: 3, parked: 0, unreadable: [], faults: [] }); // prettier-ignore
    for (const name of ['commits', 'tenants', 'fs.files', 'fs.chunks'])
      expect(await contents(client.db(restored.database), name)).toEqual(await contents(db, name));
    expect(await client.db(restored.database).collection('sessions').countDocuments()).toBe(3);
  });

  it('parks the runs that were under way for review, in whatever state', async () => {
    const queued = await session('queued');
    const running = await session('running', (sessionId) => [claim(sessionId)]);
    await session('over', () => [{ kind: 'cancel', commitId: 'cancel' }]);
    await backup();
    const { database, parked, faults } = await restore();
    expect([parked, faults]).toEqual([2, []]);
    const there = client.db(database);
    const after = new MongoCommitStore(there.collection('commits'), there.collection('sessions'));
    for (const [sessionId, c] of [[queued, 3], [running, 4]] as const) // prettier-ignore
      expect((await after.readNumber(sessionId, c))?.head).toMatchObject({ run: null, lastRun: { done: true, doneReason: 'error', failureReason: 'needs_review' } }); // prettier-ignore
    expect(await there.collection('runs').countDocuments({ state: { $in: ['queued', 'running'] } })).toBe(0);
  });

  it('holds logs without gaps and all that they refer to, also while the platform writes', async () => {
    await session('before');
    let isWriting = true;
    const writing = (async () => {
      for (let i = 0; i < 40; i++) await session(`w${i}`, () => times(3, (n) => messageCommand(`more ${n}`)));
      isWriting = false;
    })();
    while (isWriting) {
      await backup({ partBytes: 20_000 });
      expect((await checkBackup(folder)).problems).toEqual([]);
      await rm(folder, { recursive: true });
    }
    await writing;
  });

  it('that was broken off goes on behind its last whole part', async () => {
    for (let i = 0; i < 6; i++) await session(`s${i}`);
    const breakOff = () => {
      throw new Error('the machine stops');
    };
    const parts: number[] = [];
    for (let attempt = 0; attempt < 3; attempt++) {
      await expect(backup({ partBytes: 2_000, onPart: breakOff })).rejects.toThrow('the machine stops');
      await writeFile(join(folder, 'part-00099.ndjson.zst.partial'), 'half');
      parts.push((await readManifest(folder)).parts.length);
      await expect(restore()).rejects.toMatchObject({ reason: 'backup_unfinished' });
      expect((await checkBackup(folder)).problems).toContainEqual(expect.stringContaining('never finished'));
    }
    expect(parts).toEqual([1, 2, 3]);
    const { documents } = await backup({ partBytes: 2_000 });
    expect(documents).toMatchObject({ commits: 12, 'fs.files': 6 });
    expect((await readdir(folder)).filter((name) => name.endsWith('.partial'))).toEqual([]);
    expect(await checkBackup(folder)).toEqual({ sessions: 6, commits: 12, blobs: 6, problems: [] });
  });

  it('goes into no folder that holds something else', async () => {
    await backup();
    await expect(backup()).rejects.toMatchObject({ reason: 'backup_exists' });
    await writeFile(join(scratch, 'a-file'), '');
    await expect(backup({ folder: scratch })).rejects.toMatchObject({ reason: 'backup_exists' });
  });

  it('with one changed byte, or without a part, is refused', async () => {
    await session('1');
    await backup();
    const [part] = (await readManifest(folder)).parts;
    await appendFile(join(folder, part?.file ?? ''), 'x');
    await expect(checkBackup(folder)).rejects.toMatchObject({ reason: 'backup_damaged' });
    await expect(restore()).rejects.toMatchObject({ reason: 'backup_damaged' });
    await rm(join(folder, part?.file ?? ''));
    await expect(checkBackup(folder)).rejects.toMatchObject({ reason: 'backup_damaged' });
  });

  it('of a store that has lost something says what', async () => {
    const first = await session('1');
    await session('2');
    await db.collection<{ _id: string }>('commits').deleteOne({ _id: `${first}.0000000001` });
    const [file] = await db.collection('fs.files').find({}).toArray();
    await db.collection('fs.files').deleteOne({ _id: file?._id as never });
    await backup();
    expect((await checkBackup(folder)).problems).toEqual([
      expect.stringContaining('commit 1 is missing'),
      expect.stringContaining(`${String(file?.['filename'])} is missing`),
    ]);
    expect((await restore()).faults.map(({ fault }) => fault?.c)).toContain(1);
  });
});

describe('a backup of what is in a bucket', () => {
  const fake = new FakeS3();
  let objects: ObjectStore | undefined;
  beforeAll(async () => {
    await fake.start();
    const { url, bucket, accessKeyId } = fake;
    objects = await openObjects(
      BlobConfig.parse({
        MARGAY_BLOB_DRIVER: 's3',
        MARGAY_S3_ENDPOINT: url,
        MARGAY_S3_BUCKET: bucket,
        MARGAY_S3_ACCESS_KEY_ID: accessKeyId,
        MARGAY_S3_SECRET_ACCESS_KEY: 'spec-secret',
      }),
    );
  });
  afterAll(async () => {
    objects?.close();
    await fake.stop();
  });
  beforeEach(() => {
    fake.objects.clear();
    blobs = new MongoBlobStore(db, objects);
  });

  const archive = randomBytes(700_000);
  const storeArchive = () =>
    new StoredFiles(db, 'archives', { objects }).write(
      { tenantId: 't', filename: 'ws/t/w/1' },
      Readable.from([archive]),
    );

  it('is restored without the bucket', async () => {
    await session('1');
    const archiveId = await storeArchive();
    expect([fake.objects.size, await db.collection('fs.chunks').countDocuments()]).toEqual([2, 0]);
    await backup({ objects });
    expect(await checkBackup(folder)).toEqual({ sessions: 1, commits: 2, blobs: 1, problems: [] });
    fake.objects.clear();
    const { database, faults } = await restore();
    expect(faults).toEqual([]);
    const files = new StoredFiles(client.db(database), 'archives');
    const [file] = await files.files.find({ _id: archiveId }).toArray();
    const read: Buffer[] = [];
    for await (const piece of files.read(file as StoredFile)) read.push(piece);
    expect(Buffer.concat(read).equals(archive)).toBe(true);
    expect(file).not.toHaveProperty('objectKey');
  });

  it('is refused without the bucket', async () => {
    await storeArchive();
    await expect(backup()).rejects.toMatchObject({ reason: 'blob_store_missing' });
  });

  it('names a blob that the bucket has lost', async () => {
    await session('1');
    fake.objects.clear();
    await backup({ objects });
    expect((await checkBackup(folder)).problems).toEqual([
      expect.stringMatching(/blob tenant\/[0-9a-f]{64} is missing/),
    ]);
  });

  it('restores nothing of the old bucket that could be removed there', async () => {
    const unfinished = db.collection('archives.unfinished');
    await unfinished.insertOne({ at: new Date(0), objectKey: 'in use by the old installation' });
    await backup({ objects });
    const { database } = await restore();
    expect(await client.db(database).collection('archives.unfinished').findOne({})).not.toHaveProperty('objectKey');
  });
});

describe('a restore', () => {
  const beat = (database: Db) => database.collection<{ _id: string; beat: number }>('instances').updateOne({ _id: 'replica' }, { $inc: { beat: 1 } }, { upsert: true }); // prettier-ignore

  it('is refused while an instance gives signs of life, and begins nothing then', async () => {
    await backup();
    let isAlive = true;
    const live = async (): Promise<void> => {
      for (; isAlive; await new Promise((resolve) => setTimeout(resolve, 20))) await beat(db);
    };
    const living = live();
    await expect(restore({ quietMs: 60_000 })).rejects.toMatchObject({ reason: 'instances_alive' });
    isAlive = false;
    // A beat on its way would be one more sign of life.
    await living;
    expect(await client.db(db.databaseName.replace('_g0', '_g1')).listCollections().toArray()).toEqual([]);
    expect((await restore()).database).toMatch(/_g1$/);
  });

  it('that was broken off goes on where it was, and a repeated one makes another generation', async () => {
    for (let i = 0; i < 6; i++) await session(`s${i}`);
    await backup({ partBytes: 2_000 });
    const stopping = { ...logger, info: (_: unknown, text: string) => { if (text === 'part loaded') throw new Error('stop'); } } as unknown as typeof logger; // prettier-ignore
    await expect(restore({ logger: stopping })).rejects.toThrow('stop');
    const first = await restore();
    expect(first).toMatchObject({ database: db.databaseName.replace('_g0', '_g1'), sessions: 6, faults: [] });
    expect((await restore()).database).toMatch(/_g2$/);
  });

  it('needs a database that names its generation', async () => {
    await backup();
    await expect(restore({ database: 'margay' })).rejects.toMatchObject({ reason: 'no_generation' });
  });
});

describe('the age of the last backup', () => {
  it('is that of the newest good one', async () => {
    expect(await backupAgeMs(db)).toBeUndefined();
    const manifest = await backup();
    await noteBackup(db, manifest);
    expect(await backupAgeMs(db, () => Date.parse(manifest.finishedAt ?? '') + 5_000)).toBe(5_000);
  });
});

import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openStore, TEST_SOURCES, type OpenStore } from '@margay/launcher';
import { createLogger } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import type { IndexStore } from './index-store';
import { indexDocument, PLACE } from './index-store-fixture';
import { MemoryIndexStore } from './memory-index-store';
import { MongoIndexStore } from './mongo-index-store';
import { WorkspaceIndex } from './workspace-index';

let directory: string;
let server: OpenStore;
let mongo: MongoConnection;

beforeAll(async () => {
  directory = await mkdtemp(path.join(tmpdir(), 'margay-store-'));
  server = await openStore({ directory, allow: TEST_SOURCES });
  const database = `spec_${randomBytes(6).toString('hex')}`;
  mongo = new MongoConnection({ url: server.url, database, logger: createLogger({ level: 'off' }), name: 'spec' });
  await mongo.ready(30_000);
}, 600_000);
afterAll(async () => {
  await mongo.connection.dropDatabase();
  await mongo.close();
  await server.stop();
  await rm(directory, { recursive: true, force: true });
});

async function mongoStore(): Promise<IndexStore> {
  const { db } = mongo.connection;
  if (!db) throw new Error('not connected');
  const name = randomBytes(4).toString('hex');
  const store = new MongoIndexStore(db.collection(`index_${name}`), db.collection(`parts_${name}`));
  await store.createIndexes();
  return store;
}

describe.each<[string, () => Promise<IndexStore>]>([
  ['in memory', async () => new MemoryIndexStore()],
  ['in the document store', mongoStore],
])('the indexes of workspaces %s', (_, open) => {
  it('gives back what was saved, and nothing to another tenant', async () => {
    const store = await open();
    expect(await store.find(PLACE)).toBeUndefined();
    const document = indexDocument(['a', 'ž/b'], 10);
    await store.save(document);
    expect(await store.find(PLACE)).toEqual(document);
    expect(await store.find({ ...PLACE, tenantId: 't2' })).toBeUndefined();
  });

  it('never lets an older revision replace a newer one', async () => {
    const store = await open();
    await store.save(indexDocument(['new'], 20));
    await store.save(indexDocument(['old'], 10));
    await store.save(indexDocument(['same'], 20));
    expect((await store.find(PLACE))?.files).toEqual(['new']);
    await store.save(indexDocument(['newer'], 21));
    expect((await store.find(PLACE))?.files).toEqual(['newer']);
  });

  it('keeps fifty thousand paths', async () => {
    const store = await open();
    const files = Array.from({ length: 50_000 }, (_, number) => `src/folder-${number % 997}/${Math.sin(number)}.ts`);
    await store.save(indexDocument(files, 30));
    expect((await store.find(PLACE))?.files).toEqual(files);
    await store.save(indexDocument(['few'], 31));
    expect((await store.find(PLACE))?.files).toEqual(['few']);
  });

  it('forgets a workspace, its paths as well, and nobody else loses anything', async () => {
    const store = await open();
    const many = Array.from({ length: 50_000 }, (_, number) => `src/${Math.sin(number)}.ts`);
    await store.save(indexDocument(many, 10));
    await store.remove({ ...PLACE, tenantId: 't2' });
    expect((await store.find(PLACE))?.files).toHaveLength(50_000);
    await store.remove(PLACE);
    expect(await store.find(PLACE)).toBeUndefined();
    expect(await store.claimRefresh(PLACE, 1_000, 60_000)).toBe(true);
  });

  it('tells many without their paths', async () => {
    const store = await open();
    await store.save(indexDocument(['a'], 10));
    const heads = await store.heads('t1', [PLACE.workspaceId, 'b'.repeat(32)]);
    expect([...heads.keys()]).toEqual([PLACE.workspaceId]);
    expect(heads.get(PLACE.workspaceId)).toMatchObject({ revision: 10, content: { isGit: true } });
    expect(await store.heads('t2', [PLACE.workspaceId])).toEqual(new Map());
  });

  it('is confirmed forwards only', async () => {
    const store = await open();
    await store.confirm(PLACE, 5);
    expect(await store.find(PLACE)).toBeUndefined();
    await store.save(indexDocument(['a'], 10));
    await store.confirm(PLACE, 40);
    await store.confirm(PLACE, 30);
    expect(await store.find(PLACE)).toMatchObject({ atMs: 40, revision: 10, files: ['a'] });
  });

  it('lets one look anew within a time, whoever asks, also where there is nothing yet', async () => {
    const store = await open();
    const claims = async (nowMs: number) =>
      (await Promise.all(Array.from({ length: 20 }, () => store.claimRefresh(PLACE, nowMs, 60_000)))).filter(Boolean);
    expect(await claims(1_000_000)).toHaveLength(1);
    expect(await store.find(PLACE)).toBeUndefined();
    await store.save(indexDocument(['a'], 1_000_000));
    expect(await claims(1_060_000)).toHaveLength(0);
    expect(await claims(1_060_001)).toHaveLength(1);
    expect((await store.find(PLACE))?.files).toEqual(['a']);
  });
});

it('answers for a project that sleeps from the store: how long a hundred requests for 50,000 paths take', async () => {
  const store = await mongoStore();
  const files = Array.from({ length: 50_000 }, (_, number) => `src/folder-${number % 997}/file-${number}.ts`);
  await store.save(indexDocument(files, Date.now() - 120_000));
  let looks = 0;
  const index = new WorkspaceIndex({ store, now: () => Date.now(), onFailure: () => undefined });
  const look = () => {
    looks += 1;
    return new Promise<never>(() => undefined);
  };
  const times: number[] = [];
  const ask = async () => {
    const startedMs = performance.now();
    const found = await index.get(PLACE, { look, isLive: false });
    times.push(performance.now() - startedMs);
    return found;
  };
  const first = await ask();
  const [firstMs = 0] = times;
  for (let left = 99; left > 0; left -= 1) await ask();
  const sorted = times.slice(1).toSorted((a, b) => a - b);
  process.stdout.write(
    `/api/files of a sleeping project, 50,000 paths: first ${firstMs.toFixed(1)} ms, then p50 ${(sorted[49] ?? 0).toFixed(1)} ms, p99 ${(sorted[97] ?? 0).toFixed(1)} ms (aim 50)\n`,
  );
  expect([first.files.length, first.stale, looks]).toEqual([50_000, true, 1]);
});

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openStore, TEST_SOURCES, type OpenStore } from '@margay/launcher';
import { createLogger } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import type { Collection } from 'mongodb';
import { WorkspaceRepository, type WorkspaceRow } from './workspace.repository';

const directory = mkdtempSync(path.join(tmpdir(), 'margay-store-'));
const made = { class: 'default', storage: 'volume' } as const;
const volume = volumeOf('first');
let server: OpenStore;
let mongo: MongoConnection;
let rows: Collection<WorkspaceRow>;
let workspaces: WorkspaceRepository;

beforeAll(async () => {
  server = await openStore({ directory, allow: TEST_SOURCES });
  const logger = createLogger({ level: 'off' });
  mongo = new MongoConnection({ url: server.url, database: 'spec_volumes', logger, name: 'spec' });
  await mongo.ready(30_000);
  const { db } = mongo.connection;
  if (!db) throw new Error('not connected');
  rows = db.collection<WorkspaceRow>('workspaces');
  workspaces = new WorkspaceRepository(rows);
  await workspaces.createIndexes();
}, 600_000);

afterAll(async () => {
  await mongo.close();
  await server.stop();
  rmSync(directory, { recursive: true, force: true });
});

it('gives a new workspace its volume, and it lives', async () => {
  const { _id, rev } = await workspaces.obtain('t1', 's/new', made);
  expect(await workspaces.giveVolume('t1', _id, volume)).toEqual(volume);
  expect(await workspaces.find('t1', _id)).toMatchObject({ volume, state: 'live', rev: rev + 1 });
});

it('names the volume that a workspace has to whoever comes with another', async () => {
  const { _id } = await workspaces.obtain('t1', 's/second', made);
  await workspaces.giveVolume('t1', _id, volume);
  expect(await workspaces.giveVolume('t1', _id, volumeOf('second'))).toEqual(volume);
  expect(await workspaces.find('t1', _id)).toMatchObject({ volume, state: 'live' });
});

it('wakes one that slept: its files are yet to come', async () => {
  const { _id } = await workspaces.obtain('t1', 's/asleep', made);
  await rows.updateOne({ _id }, { $set: { state: 'dormant' } });
  expect(await workspaces.giveVolume('t1', _id, volume)).toEqual(volume);
  expect(await workspaces.find('t1', _id)).toMatchObject({ volume, state: 'waking' });
});

it('wakes one that is put to sleep just before', async () => {
  const { _id } = await workspaces.obtain('t1', 's/just', made);
  await workspaces.giveVolume('t1', _id, volumeOf('old'));
  const asleep = new WorkspaceRepository(fallingAsleep(_id));
  expect(await asleep.giveVolume('t1', _id, volume)).toEqual(volume);
  expect(await workspaces.find('t1', _id)).toMatchObject({ volume, state: 'waking' });
});

it.each(['deleting', 'deleted'])('gives nothing to one that is %s', async (state) => {
  const { _id } = await workspaces.obtain('t1', `s/${state}`, made);
  await rows.updateOne({ _id }, { $set: { state: state as 'live' } });
  await workspaces.giveVolume('t1', _id, volume);
  expect((await workspaces.find('t1', _id))?.volume).toBeUndefined();
});

it('knows whose workspace is the oldest, apart from those of the platform itself', async () => {
  await rows.deleteMany({});
  expect(await workspaces.oldestTenant('_platform')).toBeUndefined();
  const createdAt = (minute: number) => ({ $set: { createdAt: new Date(minute * 60_000) } });
  for (const [minute, tenantId] of ['_platform', 'first', 'second'].entries()) {
    const { _id } = await workspaces.obtain(tenantId, 's/old', made);
    await rows.updateOne({ _id }, createdAt(minute));
  }
  expect(await workspaces.oldestTenant('_platform')).toBe('first');
});

/** The rows, of which one is put to sleep after the first change that somebody tries. */
function fallingAsleep(_id: string): Collection<WorkspaceRow> {
  let isFirst = true;
  const sleepAfter = async <T>(change: Promise<T>): Promise<T> => {
    const done = await change;
    if (isFirst) await rows.updateOne({ _id }, { $set: { state: 'dormant' }, $unset: { volume: '' } });
    isFirst = false;
    return done;
  };
  return new Proxy(rows, {
    get(target, name) {
      const value: unknown = Reflect.get(target, name);
      if (typeof value !== 'function') return value;
      const call = (...args: unknown[]): unknown => Reflect.apply(value, target, args);
      const isChange = name === 'updateOne' || name === 'findOneAndUpdate';
      return isChange ? (...args: unknown[]) => sleepAfter(call(...args) as Promise<unknown>) : call;
    },
  });
}

function volumeOf(name: string) {
  return { namespace: 'test', pvcName: name, pvcUid: `uid-${name}` };
}

import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openStore, TEST_SOURCES, type OpenStore } from '@margay/launcher';
import { createLogger } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import { SandboxInventory, type InventoriedWorkspace, type KnownSandbox } from '../driver/sandbox-inventory';
import { Retention } from './retention';
import type { WorkspaceDocument } from './workspace-document';
import { WorkspaceRecords } from './workspace-records';
import { WorkspaceRemoval } from './workspace-removal';

const DAY_MS = 24 * 3_600_000;
const logger = createLogger({ level: 'off' });

/** Sandboxes and files as a driver would have them, with what is in their way. */
class FakeInventory extends SandboxInventory {
  readonly done: string[] = [];
  /** Workspace ids by session. */
  readonly living = new Map<string, string>();
  readonly unending = new Set<string>();
  obstacle: Error | undefined;
  /** While files go. */
  meanwhile: () => void = () => undefined;

  async list(): Promise<KnownSandbox[]> {
    return [];
  }

  async find(): Promise<undefined> {
    return undefined;
  }

  async listOn({ _id, tenantId }: InventoriedWorkspace): Promise<KnownSandbox[]> {
    const sessions = [...this.living].filter(([, workspaceId]) => workspaceId === _id).map(([session]) => session);
    return sessions.map((sessionId) => ({
      sandboxId: sessionId,
      tenantId,
      sessionId,
      workspaceId: _id,
      class: 'default',
      driver: 'fake',
      state: 'ready',
      lastActiveAt: undefined,
      reason: undefined,
    }));
  }

  async removeFiles({ key }: InventoriedWorkspace): Promise<void> {
    if (this.obstacle) throw this.obstacle;
    this.done.push(`files ${key}`);
    this.meanwhile();
  }

  release(sessionId: string): void {
    this.done.push(`end ${sessionId}`);
    if (!this.unending.has(sessionId)) this.living.delete(sessionId);
  }
}

describe('the removal of workspaces', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'margay-removal-'));
  const retention = new Retention({ sessionDays: 30, projectDays: 30, sessionDaysByTenant: { brief: 1 } });
  let store: OpenStore;
  let mongo: MongoConnection;
  let records: WorkspaceRecords;
  let inventory: FakeInventory;
  let now = new Date();

  beforeAll(async () => {
    mkdirSync(path.join(folder, 'store'));
    store = await openStore({ directory: path.join(folder, 'store'), allow: TEST_SOURCES });
    const database = `spec_${randomBytes(6).toString('hex')}`;
    mongo = new MongoConnection({ url: store.url, database, logger, name: 'spec' });
    await mongo.ready(30_000);
  }, 600_000);
  afterAll(async () => {
    await mongo?.connection.dropDatabase();
    await mongo?.close();
    await store?.stop();
    rmSync(folder, { recursive: true, force: true });
  });
  beforeEach(async () => {
    const { db } = mongo.connection;
    if (!db) throw new Error('the store is not connected');
    records = new WorkspaceRecords(db.collection(`workspaces${randomBytes(4).toString('hex')}`));
    await records.createIndexes();
    inventory = new FakeInventory();
    now = new Date();
  });

  const removal = () =>
    new WorkspaceRemoval({
      records,
      inventory,
      release: async (_, sessionId) => inventory.release(sessionId),
      remnants: ['archives', 'index'].map((name) => ({
        name,
        remove: async ({ _id }) => void inventory.done.push(`${name} ${_id.slice(0, 4)}`),
      })),
      retention,
      logger,
      now: () => now,
    });
  const made = (key: string, more: Partial<WorkspaceDocument> = {}, tenantId = 't1') =>
    records.obtain(tenantId, key, { class: 'default', storage: 'volume', ...more });
  const latest = ({ tenantId, _id }: WorkspaceDocument) => records.find(tenantId, _id);

  it('ends sandboxes, then removes files, then what else there is, and leaves a tombstone', async () => {
    const row = await made('p/a', { state: 'deleting' });
    inventory.living.set('s1', row._id);
    expect(await removal().sweep()).toBe(1);
    const id = row._id.slice(0, 4);
    expect(inventory.done).toEqual(['end s1', 'files p/a', `archives ${id}`, `index ${id}`]);
    expect(await latest(row)).toMatchObject({ state: 'deleted', expiresAt: expect.any(Date) });
    expect(await removal().sweep()).toBe(0);
  });

  it('tries again what fails, and says in the row what is in the way', async () => {
    const row = await made('p/b', { state: 'deleting' });
    inventory.living.set('s1', row._id);
    inventory.unending.add('s1');
    expect(await removal().sweep()).toBe(0);
    expect(await latest(row)).toMatchObject({ state: 'deleting', obstacle: 'a sandbox works there' });
    expect(inventory.done).toEqual(['end s1']);
    inventory.unending.clear();
    inventory.obstacle = new Error('rm: cannot remove: Operation not permitted');
    expect(await removal().sweep()).toBe(0);
    expect(await latest(row)).toMatchObject({ state: 'deleting', obstacle: expect.stringMatching(/not permitted/) });
    inventory.obstacle = undefined;
    expect(await removal().sweep()).toBe(1);
    expect(await latest(row)).not.toHaveProperty('obstacle');
  });

  it('takes worktrees with the project whose volume they are folders of', async () => {
    const row = await made('p/c', { state: 'deleting' });
    const part = await made('w/c:fix', { parentId: row._id });
    inventory.living.set('s2', part._id);
    expect(await removal().sweep()).toBe(1);
    expect(inventory.done.slice(0, 2)).toEqual(['end s2', 'files p/c']);
    // One that is made anew finds no memory in its way, and the project knows of no part any more.
    expect(await latest(part)).toBeUndefined();
  });

  it('takes all worktrees, however many there were', async () => {
    const row = await made('p/many', { state: 'deleting' });
    const parts = await Promise.all(
      Array.from({ length: 230 }, (_, at) => made(`w/many:t${at}`, { parentId: row._id })),
    );
    for (let left = 3; left > 0; left -= 1) await removal().sweep();
    expect((await latest(row))?.state).toBe('deleted');
    const kept = await Promise.all(parts.map(latest));
    expect(kept.filter((part) => part !== undefined)).toEqual([]);
  });

  it('removes files again where a sandbox came while they went', async () => {
    const row = await made('p/late', { state: 'deleting' });
    inventory.meanwhile = () => {
      inventory.living.set('late', row._id);
      inventory.meanwhile = () => undefined;
    };
    for (let left = 2; left > 0; left -= 1) await removal().sweep();
    const files = inventory.done.filter((step) => step === 'files p/late' || step === 'end late');
    expect(files).toEqual(['files p/late', 'end late', 'files p/late']);
    expect((await latest(row))?.state).toBe('deleted');
  });

  it('goes again when somebody looks into the files of a project that is gone', async () => {
    const row = await made('p/ended', { retainUntil: new Date(0) });
    expect(await removal().sweep()).toBe(1);
    const again = await made('p/ended');
    expect(again).toMatchObject({ _id: row._id, state: 'new' });
    expect(await removal().sweep()).toBe(1);
    expect((await latest(row))?.state).toBe('deleted');
    expect(await removal().sweep()).toBe(0);
  });

  it('waits while somebody holds it, also on its way', async () => {
    const row = await made('p/d', { state: 'deleting', legalHold: true });
    const old = await made('s/d', { lastUsedAt: new Date(0), legalHold: true });
    const retired = await made('p/e', { retainUntil: new Date(0), legalHold: true });
    expect(await removal().sweep()).toBe(0);
    for (const one of [row, old, retired]) expect((await latest(one))?.state).toBe(one.state);
    expect(inventory.done).toEqual([]);
  });

  it('begins when the time of a workspace is over: of sessions after their last use, of projects once they are gone', async () => {
    const rows = [
      await made('s/young', { lastUsedAt: new Date(now.getTime() - 29 * DAY_MS) }),
      await made('s/brief', { lastUsedAt: new Date(now.getTime() - 2 * DAY_MS) }, 'brief'),
      await made('s/unused', { lastUsedAt: new Date(now.getTime() - 31 * DAY_MS) }),
      await made('p/living', { lastUsedAt: new Date(0) }),
      await made('p/gone', { retainUntil: new Date(now.getTime() - 1) }),
      await made('p/leaving', { retainUntil: new Date(now.getTime() + 1) }),
    ];
    expect(await removal().sweep()).toBe(3);
    const states = await Promise.all(rows.map(async (row) => (await latest(row))?.state));
    expect(states).toEqual(['new', 'deleted', 'deleted', 'new', 'deleted', 'new']);
    now = new Date(now.getTime() + 2 * DAY_MS);
    expect(await removal().sweep()).toBe(2);
  });

  it('lets a workspace of the same key begin anew', async () => {
    const row = await made('p/f', { state: 'deleting', obstacle: 'x', contentAttempt: 3 });
    await removal().sweep();
    const again = await made('p/f');
    expect(again).toMatchObject({ _id: row._id, state: 'new', contentAttempt: 3 });
    expect(again).not.toHaveProperty('deletedAt');
    expect(await latest(row)).toEqual(again);
  });
});

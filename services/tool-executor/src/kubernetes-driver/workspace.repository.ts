import type { Collection } from 'mongodb';
import { isDuplicateKey, translateStoreError } from '@margay/platform';
import { workspaceDeleting } from '../driver/workspace-deleting';
import { workspaceIdOf } from '../driver/workspace-key';
import type { WorkspaceSnapshot } from '../snapshots/archive-store';

export interface WorkspaceVolume {
  namespace: string;
  pvcName: string;
  pvcUid: string;
}

/** The one sandbox that has the files, where they are on no volume. */
export interface WorkspaceHolder {
  sandboxId: string;
  sessionId: string;
  /** From then on its files are those of the workspace. */
  restoredAt?: Date;
  /** The holder before it ended with files that nobody had saved. */
  wasLost: boolean;
}

/** One row of the collection `workspaces` (cluster §2.1): where a session's or project's files lie. */
export interface WorkspaceRow {
  /** 32 hex digits. */
  _id: string;
  tenantId: string;
  /** `s/<session>`, `p/<project>` for all its sessions, or `w/<project>:<worktree>`; unique within a tenant. */
  key: string;
  /** A worktree has no volume of its own, but this folder of its project's. */
  parentId?: string;
  subPath?: string;
  class: string;
  storage: 'volume' | 'snapshot';
  state: 'new' | 'live' | 'dormant' | 'waking';
  volume?: WorkspaceVolume;
  /** The newest archive of its files. */
  snapshot?: WorkspaceSnapshot;
  holder?: WorkspaceHolder;
  /** The workspace whose files it began with. */
  forkedFrom?: string;
  createdAt: Date;
  lastUsedAt: Date;
  rev: number;
}

/** Not on its way out: what goes must not come back by a claim that began before. */
const STAYING = { state: { $nin: ['deleting', 'deleted'] } } as object;
const AWAKE = { state: { $nin: ['dormant', 'deleting', 'deleted'] } };
/** `p/<project>` and `w/<project>:<worktree>`. */
const PROJECT_KEY = /^[pw]\/([0-9a-f]{32})(:|$)/;

/** The collection `workspaces`, as far as sandboxes need it. */
export class WorkspaceRepository {
  constructor(private readonly rows: Collection<WorkspaceRow>) {}

  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ tenantId: 1, key: 1 }, { name: 'key_v1', unique: true });
    await this.rows.createIndex({ 'volume.pvcName': 1 }, { name: 'volume_v1', sparse: true });
  }

  /** The same for work that is no use of it: it does not keep it from sleeping. */
  async peek(tenantId: string, key: string, made: Parameters<WorkspaceRepository['obtain']>[2]): Promise<WorkspaceRow> {
    const known = await this.find(tenantId, workspaceIdOf(tenantId, key));
    return known ? usable(known) : this.obtain(tenantId, key, made);
  }

  /** The workspace with this key, made if there is none. @throws UnavailableError `workspace_deleting` */
  async obtain(
    tenantId: string,
    key: string,
    made: Pick<WorkspaceRow, 'class' | 'storage' | 'snapshot' | 'forkedFrom' | 'parentId' | 'subPath'>,
  ): Promise<WorkspaceRow> {
    const _id = workspaceIdOf(tenantId, key);
    const now = new Date();
    const fresh = { tenantId, key, ...made, state: 'new' as const, createdAt: now, rev: 1 };
    try {
      const change = { $set: { lastUsedAt: now }, $setOnInsert: fresh };
      const row = await this.rows.findOneAndUpdate({ _id }, change, { upsert: true, returnDocument: 'after' });
      return usable(row ?? { _id, ...fresh, lastUsedAt: now });
    } catch (error) {
      // Of two first ones at once the loser finds the winner's row.
      if (isDuplicateKey(error)) return this.obtain(tenantId, key, made);
      throw translateStoreError(error);
    }
  }

  async find(tenantId: string, id: string): Promise<WorkspaceRow | undefined> {
    try {
      return (await this.rows.findOne({ _id: id, tenantId })) ?? undefined;
    } catch (error) {
      throw translateStoreError(error);
    }
  }

  /** Its files lie there from now on, unless they lie somewhere already. @returns where they lie */
  async giveVolume(tenantId: string, id: string, volume: WorkspaceVolume): Promise<WorkspaceVolume> {
    try {
      const without = { _id: id, tenantId, volume: { $exists: false } };
      const give = (state: object, next: 'live' | 'waking'): Promise<WorkspaceRow | null> =>
        this.rows.findOneAndUpdate(
          { ...without, ...state },
          { $set: { volume, state: next }, $inc: { rev: 1 } },
          { returnDocument: 'after' },
        );
      const row =
        (await give(AWAKE, 'live')) ??
        // Of one that slept the files are yet to come.
        (await give({ state: 'dormant' }, 'waking')) ??
        (await this.rows.findOne({ _id: id, tenantId }));
      return row?.volume ?? volume;
    } catch (error) {
      throw translateStoreError(error);
    }
  }

  /**
   * A volume that says whose it is, of a workspace that knows of none, or of that one under another UID.
   * @param tenants who may have volumes in its namespace; undefined: all. @returns whether it is its now
   */
  async adopt(id: string, volume: WorkspaceVolume, tenants?: readonly string[]): Promise<boolean> {
    const ofOneOf = tenants === undefined ? {} : { tenantId: { $in: [...tenants] } };
    const hasNone = {
      volume: { $exists: false },
      storage: 'volume' as const,
      state: { $in: ['new', 'live'] as const },
    };
    const hasIt = { 'volume.pvcName': volume.pvcName, ...STAYING };
    try {
      const change = { $set: { volume, state: 'live' as const }, $inc: { rev: 1 } };
      const { matchedCount } = await this.rows.updateOne(
        { _id: id, ...ofOneOf, $or: [hasNone, hasIt] } as object,
        change,
      );
      return matchedCount === 1;
    } catch (error) {
      throw translateStoreError(error);
    }
  }

  /** @returns its project; undefined for the workspace of a single session */
  async findProject(tenantId: string, id: string): Promise<string | undefined> {
    try {
      const row = await this.rows.findOne({ _id: id, tenantId });
      return PROJECT_KEY.exec(row?.key ?? '')?.[1];
    } catch (error) {
      throw translateStoreError(error);
    }
  }

  /** Whose workspace is the oldest, apart from those of one tenant. */
  async oldestTenant(except: string): Promise<string | undefined> {
    try {
      return (
        await this.rows
          .find({ tenantId: { $ne: except } })
          .sort({ createdAt: 1 })
          .limit(1)
          .toArray()
      )[0]?.tenantId;
    } catch (error) {
      throw translateStoreError(error);
    }
  }

  /** Whose files lie there. */
  async findByVolume(namespace: string, pvcName: string): Promise<WorkspaceRow | undefined> {
    try {
      return (await this.rows.findOne({ 'volume.pvcName': pvcName, 'volume.namespace': namespace })) ?? undefined;
    } catch (error) {
      throw translateStoreError(error);
    }
  }
}

/** A claim that began before the workspace was told to go makes no further sandbox for it. */
function usable(row: WorkspaceRow): WorkspaceRow {
  const isGoing = (['deleting', 'deleted'] as readonly string[]).includes(row.state);
  if (isGoing) throw workspaceDeleting();
  return row;
}

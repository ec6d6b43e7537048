import type { Collection, Filter } from 'mongodb';
import { isDuplicateKey, translateStoreError } from '@margay/platform';
import { workspaceIdOf } from '../driver/workspace-key';
import type { WorkspaceDocument } from './workspace-document';

export interface PageRequest {
  /** Undefined: of everybody. */
  owner: string | undefined;
  after: { createdAt: Date; id: string } | undefined;
  limit: number;
}

type Changes = Partial<Omit<WorkspaceDocument, '_id' | 'tenantId' | 'key' | 'rev'>>;

const TOMBSTONE_MS = 30 * 24 * 3_600_000;
/** What a workspace of the same key does not begin with; that its project is gone stays true. */
const LEFT_BEHIND = [
  ...(['volume', 'snapshot', 'holder', 'forkedFrom', 'content'] as const),
  ...(['obstacle', 'archiveNotBefore'] as const),
];
const TRIES = 5;
/** Looked at in one turn of a sweep. */
const BATCH = 200;

/** The collection `workspaces`. What decides something is changed only as it was read. */
export class WorkspaceRecords {
  constructor(private readonly rows: Collection<WorkspaceDocument>) {}

  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ tenantId: 1, key: 1 }, { name: 'key_v1', unique: true });
    await this.rows.createIndex({ tenantId: 1, createdAt: -1, _id: -1 }, { name: 'newest_v1' });
    await this.rows.createIndex({ state: 1, lastUsedAt: 1 }, { name: 'used_v1' });
    await this.rows.createIndex({ retainUntil: 1 }, { name: 'retained_v1', sparse: true });
    await this.rows.createIndex({ expiresAt: 1 }, { name: 'expiry_v1', expireAfterSeconds: 0 });
  }

  async find(tenantId: string, id: string): Promise<WorkspaceDocument | undefined> {
    return (await this.rows.findOne({ _id: id, tenantId }).catch(rethrow)) ?? undefined;
  }

  /** The workspace with this key; made if there is none, and anew if it was deleted. */
  async obtain(
    tenantId: string,
    key: string,
    made: Pick<WorkspaceDocument, 'class' | 'storage'> & Changes,
  ): Promise<WorkspaceDocument> {
    const _id = workspaceIdOf(tenantId, key);
    for (let left = TRIES; ; left -= 1) {
      const known = await this.find(tenantId, _id);
      if (known && known.state !== 'deleted') return known;
      const now = new Date();
      const fresh = { createdAt: now, lastUsedAt: now, state: 'new' as const, ...made };
      const row = known ? await this.change(known, fresh, ['deletedAt', 'expiresAt']) : undefined;
      if (row) return row;
      const whole: WorkspaceDocument = { _id, tenantId, key, rev: 1, ...fresh };
      if (!known && (await this.insert(whole))) return whole;
      if (left <= 1) throw new Error(`workspace ${_id} changes again and again`);
    }
  }

  /** Compare and set. @returns the row as it is then; undefined: somebody else wrote first */
  async change(
    row: WorkspaceDocument,
    set: Changes,
    unset: (keyof Changes)[] = [],
  ): Promise<WorkspaceDocument | undefined> {
    const { _id, tenantId, rev } = row;
    const gone = Object.fromEntries(unset.map((name) => [name, '' as const]));
    const update = { $set: { ...set, rev: rev + 1 }, ...(unset.length > 0 ? { $unset: gone } : {}) };
    const { matchedCount } = await this.rows.updateOne({ _id, tenantId, rev }, update).catch(rethrow);
    if (matchedCount !== 1) return undefined;
    const next = { ...row, ...set, rev: rev + 1 };
    for (const name of unset) delete next[name];
    return next;
  }

  /** The same for a change that holds whatever else was written meanwhile. @returns undefined: it does not apply */
  async changeLatest(
    { _id, tenantId }: Pick<WorkspaceDocument, '_id' | 'tenantId'>,
    decide: (row: WorkspaceDocument) => { set: Changes; unset?: (keyof Changes)[] } | undefined,
  ): Promise<WorkspaceDocument | undefined> {
    for (let left = TRIES; left > 0; left -= 1) {
      const row = await this.find(tenantId, _id);
      const decided = row && decide(row);
      if (!row || !decided) return undefined;
      const changed = await this.change(row, decided.set, decided.unset);
      if (changed) return changed;
    }
    throw new Error(`workspace ${_id} changes again and again`);
  }

  /** Somebody uses it at present. */
  async touch({ _id, tenantId }: WorkspaceDocument): Promise<void> {
    await this.rows.updateOne({ _id, tenantId }, { $set: { lastUsedAt: new Date() } }).catch(rethrow);
  }

  /** Newest first: those of projects, and of sessions those of one owner. */
  async list(tenantId: string, { owner, after, limit }: PageRequest): Promise<WorkspaceDocument[]> {
    const shared: Filter<WorkspaceDocument> = { key: { $regex: '^[pw]/' } };
    const parts: Filter<WorkspaceDocument>[] = [{ tenantId, state: { $ne: 'deleted' as const } }];
    if (owner !== undefined) parts.push({ $or: [shared, { owner }] });
    if (after) {
      const { createdAt, id } = after;
      parts.push({ $or: [{ createdAt: { $lt: createdAt } }, { createdAt, _id: { $lt: id } }] });
    }
    return this.many({ $and: parts }, { createdAt: -1, _id: -1 }, limit);
  }

  /** Of all tenants: of sessions, not used since; the longest unused first. */
  listUnused(before: Date): Promise<WorkspaceDocument[]> {
    const usable = { $in: ['new', 'live', 'idle', 'dormant'] satisfies WorkspaceDocument['state'][] };
    return this.many({ state: usable, lastUsedAt: { $lt: before }, key: { $regex: '^s/' } }, { lastUsedAt: 1 }, BATCH);
  }

  /** Of all tenants: those of projects that are gone, whose time is over. */
  listRetired(now: Date): Promise<WorkspaceDocument[]> {
    const isThere = { $nin: ['deleting', 'deleted'] satisfies WorkspaceDocument['state'][] };
    return this.many({ retainUntil: { $lt: now }, state: isThere }, { retainUntil: 1 }, BATCH);
  }

  /** Of all tenants. */
  count(state: WorkspaceDocument['state']): Promise<number> {
    return this.rows.countDocuments({ state }).catch(rethrow);
  }

  /** Of all tenants: those on their way out. */
  listDeleting(): Promise<WorkspaceDocument[]> {
    return this.many({ state: 'deleting' }, { lastUsedAt: 1 }, BATCH);
  }

  /** Of all tenants: those on volumes that nobody has used since; the longest unused first. */
  listIdle(before: Date, now: Date, limit: number): Promise<WorkspaceDocument[]> {
    const idle = { lastUsedAt: { $lt: before }, ...onVolumes(now) };
    return this.many(idle, { lastUsedAt: 1 }, limit);
  }

  /** Of all tenants: those on volumes that were used after their last archive, which is older than that. */
  async listDirty(before: Date, now: Date, limit: number): Promise<WorkspaceDocument[]> {
    const unsaved = { 'snapshot.at': { $exists: false }, createdAt: { $lt: before } };
    const outdated = { 'snapshot.at': { $lt: before } };
    const rows = await this.many({ $or: [unsaved, outdated], ...onVolumes(now) }, { lastUsedAt: -1 }, BATCH);
    return rows.filter(({ lastUsedAt, snapshot }) => !snapshot || lastUsedAt > snapshot.at).slice(0, limit);
  }

  /** Whether worktrees are folders of its volume. */
  async hasParts({ _id, tenantId }: Pick<WorkspaceDocument, '_id' | 'tenantId'>): Promise<boolean> {
    const part = { tenantId, parentId: _id, state: { $ne: 'deleted' as const } };
    return (await this.rows.findOne(part).catch(rethrow)) !== null;
  }

  /** Workspaces of worktrees that are folders of its volume. */
  listParts({ _id, tenantId }: Pick<WorkspaceDocument, '_id' | 'tenantId'>): Promise<WorkspaceDocument[]> {
    return this.many({ tenantId, parentId: _id, state: { $ne: 'deleted' } }, { _id: 1 }, BATCH);
  }

  /** Of a worktree nothing is remembered: one of the same name may be made at any time. */
  async forgetPart({ _id, tenantId }: Pick<WorkspaceDocument, '_id' | 'tenantId'>): Promise<void> {
    await this.rows.deleteOne({ _id, tenantId, parentId: { $exists: true } }).catch(rethrow);
  }

  /** Nothing is left of it but this row, and that for a while. */
  async bury(row: Pick<WorkspaceDocument, '_id' | 'tenantId'>): Promise<void> {
    const deletedAt = new Date();
    const expiresAt = new Date(deletedAt.getTime() + TOMBSTONE_MS);
    await this.changeLatest(row, ({ state }) => {
      if (state !== 'deleting') return undefined;
      const set = { state: 'deleted' as const, deletedAt, expiresAt };
      return { set, unset: [...LEFT_BEHIND] };
    });
  }

  private async insert(row: WorkspaceDocument): Promise<boolean> {
    try {
      await this.rows.insertOne(row);
      return true;
    } catch (error) {
      if (isDuplicateKey(error)) return false;
      throw translateStoreError(error);
    }
  }

  private many(
    filter: Filter<WorkspaceDocument>,
    sort: Record<string, 1 | -1>,
    limit: number,
  ): Promise<WorkspaceDocument[]> {
    return this.rows.find(filter).sort(sort).limit(limit).toArray().catch(rethrow) as Promise<WorkspaceDocument[]>;
  }
}

function rethrow(error: unknown): never {
  throw translateStoreError(error);
}

function onVolumes(now: Date): Filter<WorkspaceDocument> {
  const mayBeTried = [{ archiveNotBefore: { $exists: false } }, { archiveNotBefore: { $lt: now } }];
  return {
    state: 'live',
    'volume.pvcName': { $exists: true },
    parentId: { $exists: false },
    $and: [{ $or: mayBeTried }],
  };
}

import type { Collection } from 'mongodb';
import { isDuplicateKey } from '@margay/platform';

/** A working tree of a project that was made through the API. Its folder is made after the row, and goes before it. */
export interface WorktreeRow {
  /** `<tenant> <worktree>`: projects of the configuration have the same name for every tenant. */
  _id: string;
  tenantId: string;
  /** `wt:<parent>:<slug>`. */
  worktreeId: string;
  /** How bindings name its project. */
  parent: string;
  slug: string;
  branch: string;
  owner: string;
  state: 'making' | 'live' | 'removing';
  createdAt: Date;
  /** From then on somebody looks whether it is still wanted: its last session may have ended, or who made it. */
  checkAt?: Date;
  /** Those that were about to start a run here. */
  sessions?: string[];
  rev: number;
}

export type NewWorktree = Pick<WorktreeRow, 'tenantId' | 'worktreeId' | 'parent' | 'slug' | 'branch' | 'owner'>;

/** The collection `worktrees`. */
export class WorktreeRepository {
  constructor(private readonly rows: Collection<WorktreeRow>) {}

  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ tenantId: 1, parent: 1 }, { name: 'parent_v1' });
    await this.rows.createIndex({ checkAt: 1 }, { name: 'check_v1', sparse: true });
  }

  /** @returns the row, or the one that is there already */
  async add(made: NewWorktree, checkAt: Date): Promise<{ row: WorktreeRow; isNew: boolean }> {
    const _id = keyOf(made.tenantId, made.worktreeId);
    const row: WorktreeRow = { _id, ...made, state: 'making', createdAt: new Date(), checkAt, rev: 1 };
    try {
      await this.rows.insertOne(row);
      return { row, isNew: true };
    } catch (error) {
      if (!isDuplicateKey(error)) throw error;
      const known = await this.find(made.tenantId, made.worktreeId);
      return known ? { row: known, isNew: false } : this.add(made, checkAt);
    }
  }

  async find(tenantId: string, worktreeId: string): Promise<WorktreeRow | undefined> {
    return (await this.rows.findOne({ _id: keyOf(tenantId, worktreeId), tenantId })) ?? undefined;
  }

  /** Of all projects of a tenant, or of one; the oldest first. */
  list(tenantId: string, parent?: string): Promise<WorktreeRow[]> {
    return this.rows
      .find({ tenantId, ...(parent === undefined ? {} : { parent }) })
      .sort({ createdAt: 1 })
      .toArray();
  }

  /** Changes the row unless somebody else has. @returns undefined if so */
  async change(
    row: WorktreeRow,
    state: WorktreeRow['state'],
    checkAt: Date | undefined,
  ): Promise<WorktreeRow | undefined> {
    const { _id, tenantId, rev } = row;
    const change = {
      $set: { state, ...(checkAt ? { checkAt } : {}) },
      $inc: { rev: 1 },
      ...(checkAt ? {} : { $unset: { checkAt: true as const } }),
    };
    return (await this.rows.findOneAndUpdate({ _id, tenantId, rev }, change, { returnDocument: 'after' })) ?? undefined;
  }

  /** A session is about to start a run here. @returns false where it is not live */
  async enter(tenantId: string, worktreeId: string, sessionId: string): Promise<boolean> {
    const live = { _id: keyOf(tenantId, worktreeId), tenantId, state: 'live' as const };
    return (await this.rows.updateOne(live, { $addToSet: { sessions: sessionId } })).matchedCount === 1;
  }

  /** A session of it has ended. Idempotent. */
  async mayBeIdle(tenantId: string, worktreeId: string, checkAt: Date): Promise<void> {
    await this.rows.updateOne({ _id: keyOf(tenantId, worktreeId), tenantId, state: 'live' }, { $set: { checkAt } });
  }

  /** Those to be looked at, the longest due first. */
  due(now: Date, limit: number): Promise<WorktreeRow[]> {
    return this.rows
      .find({ checkAt: { $lte: now } })
      .sort({ checkAt: 1 })
      .limit(limit)
      .toArray();
  }

  async remove({ _id, tenantId }: WorktreeRow): Promise<void> {
    await this.rows.deleteOne({ _id, tenantId });
  }
}

const keyOf = (tenantId: string, worktreeId: string): string => `${tenantId} ${worktreeId}`;

import type { ForkPlan } from '@margay/log';
import type { Collection } from 'mongodb';
import { isDuplicateKey } from '@margay/platform';

/** A fork that is not a session yet has so long to become one. */
export const ORPHAN_AFTER_MS = 3_600_000;
/** An orphan that could not be settled is looked at again after so long. */
const RETRY_AFTER_MS = 600_000;
/** What a process that was stopped for long may still write behind the removal is removed then. */
const AGAIN_AFTER_MS = 24 * ORPHAN_AFTER_MS;

/** A fork under way: it is inserted before the fork's first commit and removed when the fork is a session. */
export interface ForkRow {
  /** The new session. */
  _id: string;
  tenantId: string;
  /** JSON of its plan, which never changes: whoever finishes the fork makes the same bytes. */
  planJson: string;
  /** Of its last commit. */
  commitId: string;
  /** SHA-256 of what was asked for; of another body under the same key nothing is made. */
  bodyHash: string;
  /** From then on it is an orphan; a dead one is looked after once more. */
  dueAt: Date;
  isDead?: true;
}

/** The collection `forks`. */
export class ForkRepository {
  constructor(private readonly rows: Collection<ForkRow>) {}

  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ dueAt: 1 }, { name: 'dueAt_v1' });
  }

  async find(sessionId: string): Promise<ForkRow | undefined> {
    return (await this.rows.findOne({ _id: sessionId })) ?? undefined;
  }

  /** @returns the row of this fork: the first one counts */
  async begin(plan: ForkPlan, command: { commitId: string; bodyHash: string }): Promise<ForkRow> {
    const dueAt = new Date(Date.now() + ORPHAN_AFTER_MS);
    const planJson = JSON.stringify(plan);
    const row: ForkRow = { _id: plan.sessionId, tenantId: plan.tenantId, planJson, ...command, dueAt };
    try {
      await this.rows.insertOne(row);
      return row;
    } catch (error) {
      if (!isDuplicateKey(error)) throw error;
      return (await this.find(plan.sessionId)) ?? row;
    }
  }

  /** Takes note of a log that was left behind without a plan: nobody can finish it, so it becomes an orphan. */
  async adopt(sessionId: string, tenantId: string): Promise<void> {
    const none = { planJson: '', commitId: '', bodyHash: '', dueAt: new Date(Date.now() + ORPHAN_AFTER_MS) };
    try {
      await this.rows.insertOne({ _id: sessionId, tenantId, ...none });
    } catch (error) {
      if (!isDuplicateKey(error)) throw error;
    }
  }

  /** Begun too long ago, oldest first. */
  orphans(nowMs: number, limit: number): Promise<ForkRow[]> {
    return this.rows
      .find({ dueAt: { $lte: new Date(nowMs) } })
      .sort({ dueAt: 1 })
      .limit(limit)
      .toArray();
  }

  /** Looked at again later. */
  async postpone(sessionId: string, nowMs: number): Promise<void> {
    await this.rows.updateOne({ _id: sessionId }, { $set: { dueAt: new Date(nowMs + RETRY_AFTER_MS) } });
  }

  /** Nobody may finish it. */
  async die(sessionId: string, nowMs: number): Promise<void> {
    const set = { isDead: true as const, dueAt: new Date(nowMs + AGAIN_AFTER_MS) };
    await this.rows.updateOne({ _id: sessionId }, { $set: set });
  }

  async remove(sessionId: string): Promise<void> {
    await this.rows.deleteOne({ _id: sessionId });
  }
}

import type { Collection } from 'mongodb';
import { isDuplicateKey } from '../mongo/mongo-errors';

export interface LeaseRow {
  _id: string;
  tenantId: '_platform';
  owner: string;
  epoch: number;
  untilMs: number;
}

/** The collection `leases`: at most one replica does a periodic job. A lease is a hint; what it guards is idempotent. */
export class LeaseRepository {
  constructor(
    private readonly rows: Collection<LeaseRow>,
    private readonly owner: string,
  ) {}

  /** Lets others take a lease that this replica holds. */
  async release(name: string): Promise<void> {
    await this.rows.updateOne({ _id: name, owner: this.owner }, { $set: { untilMs: 0 } });
  }

  /** Takes or renews the lease. @returns whether this replica holds it for `ttlMs` from now */
  async hold(name: string, ttlMs: number): Promise<boolean> {
    const nowMs = Date.now();
    const set = { owner: this.owner, untilMs: nowMs + ttlMs, tenantId: '_platform' as const };
    const renewed = await this.rows.updateOne({ _id: name, owner: this.owner }, { $set: set });
    if (renewed.matchedCount === 1) return true;
    const taken = await this.rows.updateOne({ _id: name, untilMs: { $lt: nowMs } }, { $set: set, $inc: { epoch: 1 } });
    if (taken.matchedCount === 1) return true;
    try {
      await this.rows.insertOne({ _id: name, epoch: 1, ...set });
      return true;
    } catch (error) {
      if (isDuplicateKey(error)) return false;
      throw error;
    }
  }
}

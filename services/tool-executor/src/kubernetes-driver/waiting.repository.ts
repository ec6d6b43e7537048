import type { Collection } from 'mongodb';
import { isDuplicateKey, translateStoreError } from '@margay/platform';

/** A session that waits until its tenant may have another sandbox. */
export interface WaitingRow {
  /** `<tenant>/<session>`. */
  _id: string;
  tenantId: string;
  since: Date;
  /** Whoever has not asked for a while has gone. */
  seenAt: Date;
  expiresAt: Date;
}

/** Those that wait ask every second. */
const GONE_MS = 6_000;
const KEPT_MS = 60_000;

/** The collection `sandboxQueue`: first come, first served, whichever replica they ask. */
export class WaitingRepository {
  /** Those that this replica has put there. */
  private readonly joined = new Set<string>();

  constructor(private readonly rows: Collection<WaitingRow>) {}

  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ tenantId: 1, since: 1 }, { name: 'tenant_v1' });
    await this.rows.createIndex({ expiresAt: 1 }, { name: 'expiry_v1', expireAfterSeconds: 0 });
  }

  /** How many sessions of a tenant wait, apart from one. */
  async count(tenantId: string, except: string): Promise<number> {
    const seenAt = { $gte: new Date(Date.now() - GONE_MS) };
    return this.rows
      .countDocuments({ tenantId, seenAt, _id: { $ne: `${tenantId}/${except}` } })
      .catch((error: unknown) => {
        throw translateStoreError(error);
      });
  }

  /** Joins the queue, or shows that it still waits. @returns its place from 1 on */
  async join(tenantId: string, sessionId: string): Promise<number> {
    const _id = `${tenantId}/${sessionId}`;
    this.joined.add(_id);
    try {
      const row = await this.note(_id, tenantId);
      const seenAt = { $gte: new Date(Date.now() - GONE_MS) };
      const before = { $or: [{ since: { $lt: row.since } }, { since: row.since, _id: { $lt: _id } }] };
      return (await this.rows.countDocuments({ tenantId, seenAt, ...before })) + 1;
    } catch (error) {
      throw translateStoreError(error);
    }
  }

  /** It has what it waited for. Costs nothing where it did not wait. */
  async leave(tenantId: string, sessionId: string): Promise<void> {
    const _id = `${tenantId}/${sessionId}`;
    if (!this.joined.delete(_id)) return;
    await this.rows.deleteOne({ _id }).catch((error: unknown) => {
      throw translateStoreError(error);
    });
  }

  private async note(_id: string, tenantId: string): Promise<WaitingRow> {
    const now = Date.now();
    const fresh = { seenAt: new Date(now), expiresAt: new Date(now + KEPT_MS) };
    const known = await this.rows.findOne({ _id });
    if (known && now - known.seenAt.getTime() < GONE_MS) {
      await this.rows.updateOne({ _id }, { $set: fresh });
      return known;
    }
    // Whoever was away for long stands at the end again.
    const row = { _id, tenantId, since: new Date(now), ...fresh };
    try {
      await this.rows.replaceOne({ _id }, row, { upsert: true });
    } catch (error) {
      // Two replicas at once: both stand there as one.
      if (!isDuplicateKey(error)) throw error;
    }
    return row;
  }
}

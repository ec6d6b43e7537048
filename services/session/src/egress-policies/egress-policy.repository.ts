import { createHash } from 'node:crypto';
import type { EgressPolicy } from '@margay/contracts';
import { isDuplicateKey } from '@margay/platform';
import type { Collection } from 'mongodb';

export interface EgressPolicyRow {
  /** The tenant's id: each has one at most. */
  _id: string;
  tenantId: string;
  policy: EgressPolicy;
  rev: number;
  updatedBy: string;
  updatedAt: Date;
}

/** Some megabytes of the largest ones. */
const BATCH = 50;

/** The collection `egressPolicies`. */
export class EgressPolicyRepository {
  constructor(private readonly rows: Collection<EgressPolicyRow>) {}

  async find(tenantId: string): Promise<EgressPolicyRow | undefined> {
    return (await this.rows.findOne({ _id: tenantId, tenantId })) ?? undefined;
  }

  /** @returns false: there is one already */
  async add(row: EgressPolicyRow): Promise<boolean> {
    try {
      await this.rows.insertOne(row);
      return true;
    } catch (error) {
      if (isDuplicateKey(error)) return false;
      throw error;
    }
  }

  /** @returns false where it is at another revision */
  async replace(row: EgressPolicyRow, fromRev: number): Promise<boolean> {
    const { _id, tenantId } = row;
    return (await this.rows.replaceOne({ _id, tenantId, rev: fromRev }, row)).matchedCount === 1;
  }

  /**
   * Changes whenever any policy does, also where a backup that was put back has the same revisions again; cheap, since it
   * is asked for every few seconds.
   */
  async mark(): Promise<string> {
    const rows = await this.rows.find({}, { projection: { rev: 1, updatedAt: 1 } }).sort({ _id: 1 }).toArray(); // prettier-ignore
    const hash = createHash('sha256').update(
      JSON.stringify(rows.map(({ _id, rev, updatedAt }) => [_id, rev, updatedAt])),
    );
    return hash.digest('hex').slice(0, 32);
  }

  /** In the order of their tenants, those behind this one; empty: all. */
  async *behind(tenantId: string): AsyncIterable<EgressPolicyRow> {
    yield* this.rows
      .find({ _id: { $gt: tenantId } })
      .sort({ _id: 1 })
      .batchSize(BATCH);
  }
}

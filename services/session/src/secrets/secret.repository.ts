import { isDuplicateKey } from '@margay/platform';
import type { Collection } from 'mongodb';
import { CANARY } from './canary';
import type { Sealed } from './seal';

/** Owner of what belongs to the tenant as a whole; of what belongs to a member: the principal. */
export const TENANT_OWNER = 'tenant';

export interface GitAccountRow {
  host: string;
  pathPrefix: string;
  username: string;
}

export interface SecretRow extends Sealed {
  /** See `secretId`. */
  _id: string;
  tenantId: string;
  owner: string;
  name: string;
  kind: 'opaque' | 'git';
  dekId: string;
  rev: number;
  uses: string[];
  hosts: string[];
  git?: GitAccountRow;
  fingerprint: string;
  expiresAt?: Date;
  updatedBy: string;
  updatedAt: Date;
  lastUsedAt?: Date;
}

/** `<tenant>.<owner>.<name>`; dots of an owner are escaped, so that no two secrets share an id. */
export function secretId(tenantId: string, owner: string, name: string): string {
  return `${tenantId}.${owner.replaceAll('%', '%25').replaceAll('.', '%2E')}.${name}`;
}

/** The collection `secrets`. */
export class SecretRepository {
  constructor(private readonly rows: Collection<SecretRow>) {}

  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ tenantId: 1, owner: 1 }, { name: 'tenant_owner_v1' });
    await this.rows.createIndex({ dekId: 1 }, { name: 'dek_v1' });
  }

  async find(tenantId: string, id: string): Promise<SecretRow | undefined> {
    return (await this.rows.findOne({ _id: id, tenantId })) ?? undefined;
  }

  /** By name. */
  list(tenantId: string, owner: string): Promise<SecretRow[]> {
    return this.rows.find({ tenantId, owner }).sort({ name: 1 }).toArray();
  }

  listGit(tenantId: string, owner: string, host: string): Promise<SecretRow[]> {
    return this.rows.find({ tenantId, owner, kind: 'git', 'git.host': host }).toArray();
  }

  /** Of the tenant with all its members. */
  listAll(tenantId: string): Promise<SecretRow[]> {
    return this.rows.find({ tenantId }).toArray();
  }

  /** Of the tenant with all its members, or of one owner; without the canary. */
  count(tenantId: string, owner?: string): Promise<number> {
    return this.rows.countDocuments({ tenantId, name: { $ne: CANARY }, ...(owner === undefined ? {} : { owner }) });
  }

  /** @returns false: there is one already */
  async add(row: SecretRow): Promise<boolean> {
    try {
      await this.rows.insertOne(row);
      return true;
    } catch (error) {
      if (isDuplicateKey(error)) return false;
      throw error;
    }
  }

  /** @returns false where it is at another revision, or gone */
  async replace(row: SecretRow, fromRev: number): Promise<boolean> {
    const { _id, tenantId } = row;
    return (await this.rows.replaceOne({ _id, tenantId, rev: fromRev }, row)).matchedCount === 1;
  }

  /** The same text under another data key. @returns false where it was changed meanwhile */
  async reseal(row: SecretRow, next: Pick<SecretRow, 'dekId' | 'nonce' | 'ct' | 'fingerprint'>): Promise<boolean> {
    const { _id, tenantId, rev, dekId } = row;
    return (await this.rows.updateOne({ _id, tenantId, rev, dekId }, { $set: next })).matchedCount === 1;
  }

  sealedWith(tenantId: string, dekIds: readonly string[], limit: number): Promise<SecretRow[]> {
    return this.rows
      .find({ tenantId, dekId: { $in: [...dekIds] } })
      .limit(limit)
      .toArray();
  }

  /** @returns false where it is at another revision, or gone */
  async remove(tenantId: string, id: string, rev: number): Promise<boolean> {
    return (await this.rows.deleteOne({ _id: id, tenantId, rev })).deletedCount === 1;
  }

  async noteUse(tenantId: string, id: string, at: Date): Promise<void> {
    await this.rows.updateOne({ _id: id, tenantId }, { $set: { lastUsedAt: at } });
  }
}

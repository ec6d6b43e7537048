import { Role } from '@margay/contracts';
import type { Collection } from 'mongodb';
import type { TenantShare } from '../dispatch/tenant-limits';
import { isDuplicateKey } from '@margay/platform';

export interface TenantRow {
  _id: string;
  /** The row's own id: every document names its tenant. */
  tenantId: string;
  slug: string;
  name: string;
  state: 'active' | 'suspended' | 'deleting' | 'deleted';
  /** Its share of the runners beside others, 1–100; absent = the installation's default. */
  weight?: number;
  /** Of sandboxes of sessions that name none, and whose project names none. */
  sandboxClass?: string;
  /** What it can't exceed; a limit that is absent is the installation's default. */
  ceilings?: TenantCeilings;
  createdAt: Date;
}

export interface TenantCeilings {
  /** Runs running at once; more wait in the queue. */
  concurrentRuns?: number;
  /** Classes of sandboxes; absent = all, none listed = none. */
  allowedClasses?: string[];
}

/** What of a tenant's document may change; null takes back what was set. */
export interface TenantChange {
  weight?: number | null | undefined;
  concurrentRuns?: number | null | undefined;
  sandboxClass?: string | null | undefined;
  allowedClasses?: string[] | null | undefined;
}

export interface MemberRow {
  /** `<tenant>.<principal>`. */
  _id: string;
  tenantId: string;
  principal: string;
  role: Role;
  addedAt: Date;
}

export interface KeyRow {
  /** 32 hex. */
  _id: string;
  tenantId: string;
  principal: string;
  label: string;
  /** SHA-256 of the whole key text, hex. */
  secretHash: string;
  scopes: string[] | null;
  createdAt: Date;
  expiresAt: Date | null;
  revokedAt: Date | null;
}

/** The collections `tenants`, `members` and `keys`. */
export class AccessRepository {
  constructor(
    private readonly tenants: Collection<TenantRow>,
    private readonly members: Collection<MemberRow>,
    private readonly keys: Collection<KeyRow>,
  ) {}

  async createIndexes(): Promise<void> {
    await this.tenants.createIndex({ slug: 1 }, { unique: true, name: 'slug_v1' });
    await this.keys.createIndex({ tenantId: 1, principal: 1 }, { name: 'tenant_principal_v1' });
  }

  /** @returns false where a tenant with this id or slug exists */
  insertTenant(tenant: TenantRow): Promise<boolean> {
    return insertNew(this.tenants, tenant);
  }

  insertMember(member: MemberRow): Promise<boolean> {
    return insertNew(this.members, member);
  }

  insertKey(key: KeyRow): Promise<boolean> {
    return insertNew(this.keys, key);
  }

  async findTenant(id: string): Promise<TenantRow | undefined> {
    return (await this.tenants.findOne({ _id: id })) ?? undefined;
  }

  /** By its id or its slug. */
  async findNamed(named: string): Promise<TenantRow | undefined> {
    return (await this.findTenant(named)) ?? (await this.tenants.findOne({ slug: named })) ?? undefined;
  }

  /** Shares of the runners; tenants that do not exist are left out. */
  async shares(tenantIds: readonly string[]): Promise<TenantShare[]> {
    const rows = await this.tenants.find({ _id: { $in: [...tenantIds] } }).toArray();
    return rows.map(({ _id, weight, ceilings }) => ({
      tenantId: _id,
      ...(weight === undefined ? {} : { weight }),
      ...(ceilings?.concurrentRuns === undefined ? {} : { maxRunning: ceilings.concurrentRuns }),
    }));
  }

  /** @returns false where there is no such tenant */
  async changeTenant(id: string, change: TenantChange): Promise<boolean> {
    const fields = Object.entries({
      weight: change.weight,
      sandboxClass: change.sandboxClass,
      'ceilings.concurrentRuns': change.concurrentRuns,
      'ceilings.allowedClasses': change.allowedClasses,
    });
    const set = fields.filter(([, value]) => value !== undefined && value !== null);
    const unset = fields.filter(([, value]) => value === null).map(([name]) => [name, ''] as const);
    const update = {
      ...(set.length === 0 ? {} : { $set: Object.fromEntries(set) }),
      ...(unset.length === 0 ? {} : { $unset: Object.fromEntries(unset) }),
    };
    if (set.length + unset.length === 0) return (await this.findTenant(id)) !== undefined;
    return (await this.tenants.updateOne({ _id: id }, update)).matchedCount === 1;
  }

  async findKey(id: string): Promise<KeyRow | undefined> {
    return (await this.keys.findOne({ _id: id })) ?? undefined;
  }

  /** Whether a principal has a key that is not revoked. */
  async hasKey(tenantId: string, principal: string): Promise<boolean> {
    return (await this.keys.findOne({ tenantId, principal, revokedAt: null })) !== null;
  }

  async findRole(tenantId: string, principal: string): Promise<Role | undefined> {
    const member = await this.members.findOne({ _id: `${tenantId}.${principal}` });
    return member ? Role.parse(member.role) : undefined;
  }
}

async function insertNew<T extends { _id: string }>(collection: Collection<T>, row: T): Promise<boolean> {
  try {
    await collection.insertOne(row as never);
    return true;
  } catch (error) {
    if (isDuplicateKey(error)) return false;
    throw error;
  }
}

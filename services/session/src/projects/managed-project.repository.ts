import type { ContentSource } from '@margay/contracts';
import type { Collection } from 'mongodb';
import { isDuplicateKey } from '@margay/platform';

export interface ManagedProjectRow {
  /** 32 hex digits. */
  _id: string;
  tenantId: string;
  name: string;
  description: string;
  /** Who made it. */
  owner: string;
  createdAt: Date;
  updatedAt: Date;
  /** Absent where nobody keeps records of workspaces, and in older projects. */
  workspaceId?: string;
  /** What its files began with. */
  content?: ContentSource;
  /** Of sandboxes of its sessions that name none. */
  sandboxClass?: string;
  /** Nobody finds it any more; its files are kept for a while. */
  deletedAt?: Date;
  /** Its workspace is on its way out. */
  retiredAt?: Date;
}

/** An empty class takes back what was set. */
export type ManagedProjectChange = Partial<
  Pick<ManagedProjectRow, 'name' | 'description' | 'sandboxClass' | 'updatedAt' | 'deletedAt'>
>;

/** The collection `projects`. */
export class ManagedProjectRepository {
  constructor(private readonly rows: Collection<ManagedProjectRow>) {}

  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ tenantId: 1, createdAt: 1 }, { name: 'tenant_v1' });
    await this.rows.createIndex({ deletedAt: 1 }, { name: 'deleted_v1', sparse: true });
  }

  /** @returns false: there is one with this id already */
  async add(row: ManagedProjectRow): Promise<boolean> {
    try {
      await this.rows.insertOne(row);
      return true;
    } catch (error) {
      if (isDuplicateKey(error)) return false;
      throw error;
    }
  }

  async find(tenantId: string, id: string): Promise<ManagedProjectRow | undefined> {
    return (await this.rows.findOne({ _id: id, tenantId, deletedAt: { $exists: false } })) ?? undefined;
  }

  /** Oldest first. */
  list(tenantId: string, limit: number): Promise<ManagedProjectRow[]> {
    const shown = { tenantId, deletedAt: { $exists: false } };
    return this.rows.find(shown).sort({ createdAt: 1 }).limit(limit).toArray();
  }

  async update(
    tenantId: string,
    id: string,
    { sandboxClass, ...change }: ManagedProjectChange,
  ): Promise<ManagedProjectRow | undefined> {
    const living = { _id: id, tenantId, deletedAt: { $exists: false } };
    const update = {
      $set: { ...change, ...(sandboxClass ? { sandboxClass } : {}) },
      ...(sandboxClass === '' ? { $unset: { sandboxClass: '' as const } } : {}),
    };
    return (await this.rows.findOneAndUpdate(living, update, { returnDocument: 'after' })) ?? undefined;
  }

  /** Of all tenants: deleted ones whose workspace does not know yet. */
  listUnretired(limit: number): Promise<ManagedProjectRow[]> {
    const unretired = { deletedAt: { $exists: true }, retiredAt: { $exists: false } };
    return this.rows.find(unretired).sort({ deletedAt: 1 }).limit(limit).toArray();
  }

  async noteRetired(tenantId: string, id: string): Promise<void> {
    await this.rows.updateOne({ _id: id, tenantId }, { $set: { retiredAt: new Date() } });
  }
}

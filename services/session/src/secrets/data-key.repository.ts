import type { Collection } from 'mongodb';
import type { WrappedKey } from './key-encryption';

/** A data key as its tenant's document holds it. */
export interface DataKeyRow extends WrappedKey {
  /** 8 hex digits. */
  id: string;
  createdAt: Date;
  /** Set once a newer one seals; it still opens what it has sealed. */
  retiredAt: Date | null;
  /** Texts sealed with it. */
  uses: number;
}

export interface TenantDataKeys {
  _id: string;
  /** Oldest first; places never change. */
  deks?: DataKeyRow[];
}

/** The field `deks` of the collection `tenants`. */
export class DataKeyRepository {
  constructor(private readonly tenants: Collection<TenantDataKeys>) {}

  /** @returns undefined where there is no such tenant */
  async find(tenantId: string): Promise<DataKeyRow[] | undefined> {
    const tenant = await this.tenants.findOne({ _id: tenantId }, { projection: { deks: 1 } });
    return tenant ? (tenant.deks ?? []) : undefined;
  }

  /** @returns false where another one has taken the place */
  async add(tenantId: string, place: number, row: DataKeyRow): Promise<boolean> {
    const isFree = { _id: tenantId, [`deks.${place}`]: { $exists: false } };
    return (await this.tenants.updateOne(isFree, { $push: { deks: row } })).modifiedCount === 1;
  }

  async retire(tenantId: string, place: number, at: Date): Promise<void> {
    const living = { _id: tenantId, [`deks.${place}.retiredAt`]: null };
    await this.tenants.updateOne(living, { $set: { [`deks.${place}.retiredAt`]: at } });
  }

  async countUse(tenantId: string, place: number): Promise<void> {
    await this.tenants.updateOne({ _id: tenantId }, { $inc: { [`deks.${place}.uses`]: 1 } });
  }

  /** @returns false where it is not wrapped with that key any more */
  async rewrap(tenantId: string, place: number, fromKid: string, to: WrappedKey): Promise<boolean> {
    const [kid, wrapped] = [`deks.${place}.kid`, `deks.${place}.wrapped`];
    const unmoved = { _id: tenantId, [kid]: fromKid };
    return (
      (await this.tenants.updateOne(unmoved, { $set: { [kid]: to.kid, [wrapped]: to.wrapped } })).matchedCount === 1
    );
  }

  /** The data keys of every tenant that has any. */
  async *all(): AsyncIterable<{ tenantId: string; deks: DataKeyRow[] }> {
    const owners = this.tenants.find({ 'deks.0': { $exists: true } }, { projection: { deks: 1 } });
    for await (const { _id, deks = [] } of owners) yield { tenantId: _id, deks };
  }
}

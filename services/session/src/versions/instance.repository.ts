import type { Collection } from 'mongodb';

/** A process of the platform, as far as others need to know that it lives, and of which version it is. */
export interface InstanceRow {
  /** Random per process start. */
  _id: string;
  tenantId: '_platform';
  service: string;
  /** Absent from rows of replicas that knew none. */
  version?: string;
  /** Raised again and again. */
  beat: number;
}

const LISTED_MAX = 5_000;

/** The collection `instances`. */
export class InstanceRepository {
  constructor(private readonly rows: Collection<InstanceRow>) {}

  async beat({ _id, service, version }: { _id: string; service: string; version: string }): Promise<void> {
    const set = { tenantId: '_platform' as const, service, version };
    await this.rows.updateOne({ _id }, { $inc: { beat: 1 }, $set: set }, { upsert: true });
  }

  async remove(instance: string): Promise<void> {
    await this.rows.deleteOne({ _id: instance });
  }

  listAll(): Promise<InstanceRow[]> {
    return this.rows.find({}).limit(LISTED_MAX).toArray();
  }
}

import type { Collection } from 'mongodb';

/** A session replica, as far as others need to know that it lives. */
export interface ReplicaRow {
  /** Instance: random per process start. */
  _id: string;
  tenantId: '_platform';
  service: 'session';
  /** Raised every second. */
  beat: number;
}

const LISTED_MAX = 1_000;

/** The session replicas in the collection `instances`. */
export class ReplicaRepository {
  constructor(
    private readonly rows: Collection<ReplicaRow>,
    private readonly instance: string,
  ) {}

  async beat(): Promise<void> {
    const raise = { $inc: { beat: 1 }, $setOnInsert: { tenantId: '_platform' as const, service: 'session' as const } };
    await this.rows.updateOne({ _id: this.instance }, raise, { upsert: true });
  }

  /** This replica leaves: nobody needs to find out. */
  async leave(): Promise<void> {
    await this.remove(this.instance);
  }

  async remove(instance: string): Promise<void> {
    await this.rows.deleteOne({ _id: instance });
  }

  list(): Promise<ReplicaRow[]> {
    return this.rows.find({ service: 'session' }).limit(LISTED_MAX).toArray();
  }
}

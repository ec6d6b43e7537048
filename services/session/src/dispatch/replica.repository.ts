import type { Collection } from 'mongodb';

/** A session replica, as far as others need to know that it lives. */
export interface ReplicaRow {
  /** Instance: random per process start. */
  _id: string;
  tenantId: '_platform';
  service: 'session';
  /** Of its build; absent from rows of older ones. */
  version?: string;
  /** Raised every second. */
  beat: number;
}

const LISTED_MAX = 1_000;

/** The session replicas in the collection `instances`. */
export class ReplicaRepository {
  constructor(
    private readonly rows: Collection<ReplicaRow>,
    private readonly instance: string,
    private readonly version = '0.0.0',
  ) {}

  async beat(): Promise<void> {
    const { version } = this;
    const fields = { tenantId: '_platform' as const, service: 'session' as const, version };
    const raise = { $inc: { beat: 1 }, $setOnInsert: fields };
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

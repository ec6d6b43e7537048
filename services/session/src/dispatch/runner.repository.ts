import type { Collection } from 'mongodb';

/** Liveness of a runner process, as a hint. */
export interface RunnerRow {
  _id: string;
  tenantId: '_platform';
  pool: string;
  /** Raised with every heartbeat. */
  beat: number;
  /** Raised with every `Attach`: a replica that saw an older one close marks nothing. */
  generation: number;
  isLost: boolean;
  seenAt: Date;
}

/** The collection `runners`. */
export class RunnerRepository {
  constructor(private readonly rows: Collection<RunnerRow>) {}

  /** @returns the generation of this attachment */
  async attach(instance: string, pool: string): Promise<number> {
    const row = await this.rows.findOneAndUpdate(
      { _id: instance },
      { $inc: { generation: 1, beat: 1 }, $set: { pool, isLost: false, seenAt: new Date(), tenantId: '_platform' } },
      { upsert: true, returnDocument: 'after' },
    );
    return row?.generation ?? 1;
  }

  async beat(instance: string): Promise<void> {
    await this.rows.updateOne({ _id: instance }, { $inc: { beat: 1 }, $set: { seenAt: new Date() } });
  }

  /** @returns false where the runner attached again since */
  async markLost(instance: string, generation: number): Promise<boolean> {
    const marked = await this.rows.updateOne({ _id: instance, generation }, { $set: { isLost: true } });
    return marked.matchedCount === 1;
  }

  async remove(instance: string): Promise<void> {
    await this.rows.deleteOne({ _id: instance });
  }

  listAll(): Promise<RunnerRow[]> {
    return this.rows.find({}).limit(5_000).toArray();
  }
}

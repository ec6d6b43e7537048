import type { Collection } from 'mongodb';
import { isDuplicateKey } from '../store/mongo-errors';

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

/** One attachment of a runner. */
export interface Attachment {
  instance: string;
  pool: string;
  generation: number;
}

const LISTED_MAX = 5_000;

/** The collection `runners`. */
export class RunnerRepository {
  constructor(private readonly rows: Collection<RunnerRow>) {}

  /** @returns the generation of this attachment */
  async attach(instance: string, pool: string): Promise<number> {
    const fields = { pool, isLost: false, seenAt: new Date() };
    try {
      await this.rows.insertOne({ _id: instance, tenantId: '_platform', generation: 1, beat: 1, ...fields });
      return 1;
    } catch (error) {
      if (!isDuplicateKey(error)) throw error;
    }
    const raise = { $inc: { generation: 1, beat: 1 }, $set: fields };
    const row = await this.rows.findOneAndUpdate({ _id: instance }, raise, { returnDocument: 'after' });
    // Somebody may just have removed it.
    return row?.generation ?? this.attach(instance, pool);
  }

  /** Also brings back the row of a runner that lives although it was given up; a later attachment is left alone. */
  async beat({ instance, pool, generation }: Attachment): Promise<void> {
    const first = { pool, isLost: false, tenantId: '_platform' as const };
    const raise = { $inc: { beat: 1 }, $set: { seenAt: new Date() }, $setOnInsert: first };
    try {
      await this.rows.updateOne({ _id: instance, generation }, raise, { upsert: true });
    } catch (error) {
      if (!isDuplicateKey(error)) throw error;
    }
  }

  /** @returns false where the runner attached again since */
  async markLost(instance: string, generation: number): Promise<boolean> {
    const marked = await this.rows.updateOne({ _id: instance, generation }, { $set: { isLost: true } });
    return marked.matchedCount === 1;
  }

  /** Removes a runner that has given no sign of life since this beat. */
  async remove({ _id, beat }: Pick<RunnerRow, '_id' | 'beat'>): Promise<void> {
    await this.rows.deleteOne({ _id, beat });
  }

  async find(instance: string): Promise<RunnerRow | undefined> {
    return (await this.rows.findOne({ _id: instance })) ?? undefined;
  }

  listAll(): Promise<RunnerRow[]> {
    return this.rows.find({}).limit(LISTED_MAX).toArray();
  }
}

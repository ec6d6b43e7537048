import { randomInt } from 'node:crypto';
import type { Collection } from 'mongodb';
import { isDuplicateKey } from '@margay/platform';

/** Liveness of a runner process, as a hint. */
export interface RunnerRow {
  _id: string;
  tenantId: '_platform';
  pool: string;
  /** Raised with every heartbeat. */
  beat: number;
  /**
   * Another one with every `Attach`, also where the row was removed in between: a replica that saw an older one close marks
   * nothing.
   */
  generation: number;
  isLost: boolean;
  seenAt: Date;
  /** Session replica that its `Attach` stream ends at; absent from rows of older versions. */
  replica?: string;
  /** Runs it drives at once. */
  slots?: number;
}

/** One attachment of a runner. */
export interface Attachment {
  instance: string;
  pool: string;
  slots: number;
  generation: number;
}

const LISTED_MAX = 5_000;
/** Generations of a row begin anywhere below, so that no two rows of a runner share one. */
const FIRST_GENERATION_MAX = 2 ** 47;

/** The collection `runners`. */
export class RunnerRepository {
  /** @param replica the session replica that runners attach to here */
  constructor(
    private readonly rows: Collection<RunnerRow>,
    private readonly replica: string,
  ) {}

  /** @returns the generation of this attachment */
  async attach(instance: string, pool: string, slots: number): Promise<number> {
    const generation = randomInt(FIRST_GENERATION_MAX);
    const fields = { pool, slots, isLost: false, seenAt: new Date(), replica: this.replica };
    try {
      await this.rows.insertOne({ _id: instance, tenantId: '_platform', generation, beat: 1, ...fields });
      return generation;
    } catch (error) {
      if (!isDuplicateKey(error)) throw error;
    }
    const raise = { $inc: { generation: 1, beat: 1 }, $set: fields };
    const row = await this.rows.findOneAndUpdate({ _id: instance }, raise, { returnDocument: 'after' });
    // Somebody may just have removed it.
    return row?.generation ?? this.attach(instance, pool, slots);
  }

  /** Also brings back the row of a runner that lives although it was given up; a later attachment is left alone. */
  async beat({ instance, pool, slots, generation }: Attachment): Promise<void> {
    const first = { pool, slots, replica: this.replica, isLost: false, tenantId: '_platform' as const };
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
  async remove({ _id, beat, generation }: Pick<RunnerRow, '_id' | 'beat' | 'generation'>): Promise<void> {
    await this.rows.deleteOne({ _id, beat, generation });
  }

  async find(instance: string): Promise<RunnerRow | undefined> {
    return (await this.rows.findOne({ _id: instance })) ?? undefined;
  }

  /** Slots of all runners of a pool that are not given up. */
  async slots(pool: string): Promise<number> {
    const rows = await this.rows.find({ pool, isLost: false }).limit(LISTED_MAX).toArray();
    return rows.reduce((sum, { slots }) => sum + (slots ?? 0), 0);
  }

  listAll(): Promise<RunnerRow[]> {
    return this.rows.find({}).limit(LISTED_MAX).toArray();
  }
}

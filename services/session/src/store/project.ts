import type { Collection, Filter, MatchKeysAndValues } from 'mongodb';
import { isDuplicateKey } from '@margay/platform';
import { WriteBatch } from './write-batch';

interface Projection {
  _id: string;
  tenantId: string;
  /** Number of the commit that this row shows. */
  c: number;
}

/** Whole-state writes of projections, guarded by the commit number: an older state never overwrites a newer one. */
export class Projector<T extends Projection> {
  private readonly batch: WriteBatch<T>;

  constructor(rows: Collection<T>) {
    this.batch = new WriteBatch(rows);
  }

  /** Resolves once the row shows this state or a newer one. */
  async project({ _id, ...fields }: T): Promise<void> {
    const filter = { _id, c: { $lt: fields.c } } as Filter<T>;
    const update = { $set: fields as unknown as MatchKeysAndValues<T> };
    try {
      await this.batch.add(_id, fields.c, { updateOne: { filter, update, upsert: true } });
    } catch (error) {
      if (!isDuplicateKey(error)) throw error;
      // The row is as new, or another writer has just inserted an older state of it.
      await this.batch.add(`${_id} again`, fields.c, { updateOne: { filter, update } });
    }
  }
}

import type { Collection, Filter, MatchKeysAndValues } from 'mongodb';
import { isDuplicateKey } from './mongo-errors';

interface Projection {
  _id: string;
  tenantId: string;
  /** Number of the commit that this row shows. */
  c: number;
}

/** Whole-state write of a projection, guarded by the commit number: an older state never overwrites a newer one. */
export async function project<T extends Projection>(rows: Collection<T>, { _id, ...fields }: T): Promise<void> {
  const older = { _id, c: { $lt: fields.c } } as Filter<T>;
  const update = { $set: fields as unknown as MatchKeysAndValues<T> };
  try {
    await rows.updateOne(older, update, { upsert: true });
  } catch (error) {
    if (!isDuplicateKey(error)) throw error;
    // The row is as new, or another writer has just inserted an older state of it.
    await rows.updateOne(older, update);
  }
}

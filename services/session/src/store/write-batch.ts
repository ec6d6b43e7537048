import type { AnyBulkWriteOperation, BulkWriteResult, Document } from 'mongodb';

const GATHER_MS = 5;
const BATCH_MAX = 500;

/** The one method of a collection that is used here. */
export interface BulkWriter<T extends Document> {
  bulkWrite(operations: AnyBulkWriteOperation<T>[], options: { ordered: false }): Promise<BulkWriteResult>;
}

interface Waiting<T extends Document> {
  rank: number;
  operation: AnyBulkWriteOperation<T>;
  settle: (() => void)[];
  fail: ((error: unknown) => void)[];
}

/**
 * Gathers writes of one collection for 5 ms and sends them together, each on its own: one that fails does not hold the
 * others up. Only for writes that may be late and are safe to repeat.
 */
export class WriteBatch<T extends Document> {
  private waiting = new Map<string, Waiting<T>>();
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly rows: BulkWriter<T>) {}

  /**
   * Resolves once the write is acknowledged.
   * @param key what is written; a write of the same thing with a higher rank takes the place of one that still waits
   */
  add(key: string, rank: number, operation: AnyBulkWriteOperation<T>): Promise<void> {
    return new Promise((settle, fail) => {
      const known = this.waiting.get(key);
      if (!known) this.waiting.set(key, { rank, operation, settle: [settle], fail: [fail] });
      else {
        known.settle.push(settle);
        known.fail.push(fail);
        if (rank > known.rank) Object.assign(known, { rank, operation });
      }
      if (this.waiting.size >= BATCH_MAX) void this.flush();
      else this.timer ??= setTimeout(() => void this.flush(), GATHER_MS);
    });
  }

  private async flush(): Promise<void> {
    clearTimeout(this.timer);
    this.timer = undefined;
    const batch = [...this.waiting.values()];
    this.waiting = new Map();
    let failures: (index: number) => unknown = () => undefined;
    try {
      await this.rows.bulkWrite(
        batch.map(({ operation }) => operation),
        { ordered: false },
      );
    } catch (error) {
      failures = failuresOf(error);
    }
    batch.forEach(({ settle, fail }, index) => {
      const failure = failures(index);
      if (failure === undefined) for (const done of settle) done();
      else for (const refuse of fail) refuse(failure);
    });
  }
}

/** The failure of each write; of all of them where the batch failed as a whole. */
function failuresOf(error: unknown): (index: number) => unknown {
  const { writeErrors, result } = error as { writeErrors?: { index: number }[]; result?: unknown };
  if (!Array.isArray(writeErrors) || result === undefined) return () => error;
  const byIndex = new Map(writeErrors.map((failure) => [failure.index, failure]));
  return (index) => byIndex.get(index);
}

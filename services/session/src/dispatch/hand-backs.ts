import { LRUCache } from 'lru-cache';
import type { RunRow } from './run.repository';

const REMEMBERED_MAX = 20_000;
const FIRST_DELAY_MS = 1_000;
const DELAY_MAX_MS = 60_000;

interface Seen {
  epoch: number;
  c: number;
  /** How often it came back in a row without a word of its owner. */
  returns: number;
  dueMs: number;
}

/**
 * Runs that come back to the queue without progress are offered again after a growing delay: at once after the first
 * time (a drain, a killed runner), then 1 s, 2 s … 60 s later. Every raise of the epoch is a commit, so where commit
 * numbers grew no more than epochs, no owner stored anything; each replica sees that from the rows alone.
 */
export class HandBacks {
  private readonly seen = new LRUCache<string, Seen>({ max: REMEMBERED_MAX });

  constructor(private readonly nowMs: () => number = () => performance.now()) {}

  /** Whether a queued run has to wait before it is offered again. */
  isDelayed({ _id, epoch, c }: Pick<RunRow, '_id' | 'epoch' | 'c'>): boolean {
    const known = this.seen.get(_id);
    if (known && known.epoch >= epoch) return known.dueMs > this.nowMs();
    const returns = known && c - known.c <= epoch - known.epoch ? known.returns + 1 : 0;
    const delayMs = returns < 2 ? 0 : Math.min(FIRST_DELAY_MS * 2 ** (returns - 2), DELAY_MAX_MS);
    this.seen.set(_id, { epoch, c, returns, dueMs: this.nowMs() + delayMs });
    return delayMs > 0;
  }
}

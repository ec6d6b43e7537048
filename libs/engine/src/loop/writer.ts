import type { EventInput } from '@margay/contracts';
import type { OpenRecord } from '@margay/log';
import type { Journal, Progress } from '../ports';

/** What waits for the next commit. */
export interface Carried {
  events: EventInput[];
  records: OpenRecord[];
}

export const nothing = (): Carried => ({ events: [], records: [] });

/** The journal as the loop uses it: commits may be left to themselves, a refused one halts the run. */
export class Writer {
  constructor(
    private readonly journal: Journal,
    /** Number of the last commit known to be stored. */
    public storedC: number,
    private readonly onRefused: (error: unknown) => void,
  ) {}

  /** @returns settles once stored; a caller need not wait for it */
  commit(progress: Progress): Promise<number> {
    const stored = this.journal.commit(progress);
    stored.then((c) => (this.storedC = c), this.onRefused);
    return stored;
  }
}

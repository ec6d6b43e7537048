import { subjects, type LiveCommit } from '@margay/contracts';
import type { NatsBus, Sweep } from '@margay/platform';
import { LRUCache } from 'lru-cache';
import type { SessionRepository } from '../effects/session.repository';
import type { QueuePositions } from './queue-positions';
import type { RunRepository, RunRow } from './run.repository';

const EVERY_MS = 5_000;
/** A run that has waited so long for a runner tells its listeners where it stands. */
const WAITED_MS = 30_000;
const REMINDED_MAX = 1_000;

export interface QueueRemindersPorts {
  runs: Pick<RunRepository, 'waitingSince'>;
  sessions: Pick<SessionRepository, 'states'>;
  positions: Pick<QueuePositions, 'ofRuns'>;
  bus: Pick<NatsBus, 'publish'>;
  pools: readonly string[];
  /** Milliseconds since the epoch. */
  now?: () => number;
}

/**
 * Tells those who follow a session whose run has waited for 30 s where it stands, whenever that changes. Nothing of it is
 * stored: it is the state of the last commit, announced again. One replica at a time does it, under a lease.
 */
export class QueueReminders {
  private readonly told = new LRUCache<string, number>({ max: REMINDED_MAX * 2 });

  constructor(private readonly ports: QueueRemindersPorts) {}

  /** Done under a lease; it repairs nothing. */
  get sweep(): Sweep {
    return { name: 'queue-reminders', everyMs: EVERY_MS, sweep: () => this.remind().then(() => 0) };
  }

  /** @returns how many were told */
  async remind(): Promise<number> {
    let told = 0;
    for (const pool of this.ports.pools) told += await this.remindIn(pool);
    return told;
  }

  private async remindIn(pool: string): Promise<number> {
    const { runs, positions, sessions, now = Date.now } = this.ports;
    const waiting = await runs.waitingSince(pool, now() - WAITED_MS, REMINDED_MAX);
    if (waiting.length === 0) return 0;
    const places = await positions.ofRuns(pool);
    const changed = waiting.filter(({ _id }) => places.has(_id) && this.told.get(_id) !== places.get(_id));
    if (changed.length === 0) return 0;
    const rows = await sessions.states(changed.map(({ sessionId }) => sessionId));
    const states = new Map(rows.map((row) => [row._id, row]));
    return changed.filter((run) => this.tell(run, places.get(run._id) ?? 0, states.get(run.sessionId))).length;
  }

  private tell(run: RunRow, place: number, shown: { c: number; stateJson: string } | undefined): boolean {
    // The projection of the session is behind: the next time then.
    if (!shown || shown.c < run.c) return false;
    this.told.set(run._id, place);
    const state = JSON.stringify({ ...(JSON.parse(shown.stateJson) as object), queue_position: place });
    const message: LiveCommit = { c: shown.c, state, restated: true };
    this.ports.bus.publish(subjects.sessionEvents(run.tenantId, run.sessionId), JSON.stringify(message));
    return true;
  }
}

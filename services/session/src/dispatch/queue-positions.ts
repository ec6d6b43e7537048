import type { Head } from '@margay/log';
import type { Logger } from '@margay/platform';
import { ORDERED_MAX, type RunQueue } from './run-queue';
import type { RunRepository, RunRow } from './run.repository';

/** However many ask, the queue is read so often at most. */
const FRESH_MS = 1_000;
/** A run that was queued this moment most often starts this moment. */
const SHOWN_AFTER_MS = 1_000;

export interface QueuePositionsPorts {
  queue: Pick<RunQueue, 'order'>;
  runs: Pick<RunRepository, 'ahead'>;
  /** Of all runners: the rows of lists don't name theirs. */
  pools: readonly string[];
  logger: Pick<Logger, 'debug'>;
  /** Milliseconds since the epoch. */
  now?: () => number;
}

interface Places {
  ofRun: Map<string, number>;
  ofSession: Map<string, number>;
}

interface Snapshot {
  takenMs: number;
  places: Promise<Places>;
}

/** Where queued runs stand, counted from 1: the order in which fairness starts them if nothing ends or comes. */
export class QueuePositions {
  private readonly snapshots = new Map<string, Snapshot>();
  private readonly now: () => number;

  constructor(private readonly ports: QueuePositionsPorts) {
    this.now = ports.now ?? Date.now;
  }

  /** Place of a session's run; undefined where none has been waiting for a runner for a second, or nobody knows. */
  async ofHead({ run, ts }: Head): Promise<number | undefined> {
    if (run?.state !== 'queued' || this.now() - ts / 1_000 < SHOWN_AFTER_MS) return undefined;
    return this.unless(async () => {
      const { ofRun } = await this.places(run.pool);
      const place = ofRun.get(run.id);
      // It may just have been given away, or stands beyond those whose order is worked out.
      if (place !== undefined || ofRun.size < ORDERED_MAX) return place;
      return (await this.ports.runs.ahead(run.pool, Math.floor(run.acceptedTs / 1_000))) + 1;
    });
  }

  /** Places by the id of the run, of the first thousand. At most a second old. */
  async ofRuns(pool: string): Promise<ReadonlyMap<string, number>> {
    return (await this.places(pool)).ofRun;
  }

  /** The same by the id of the session, for lists; undefined where nobody knows. */
  async ofSessions(): Promise<ReadonlyMap<string, number> | undefined> {
    return this.unless(async () => {
      const places = await Promise.all(this.ports.pools.map((pool) => this.places(pool)));
      return new Map(places.flatMap(({ ofSession }) => [...ofSession]));
    });
  }

  private places(pool: string): Promise<Places> {
    const known = this.snapshots.get(pool);
    if (known && this.now() - known.takenMs < FRESH_MS) return known.places;
    const places = this.ports.queue.order(pool).then(placesOf);
    const taken = { takenMs: this.now(), places };
    this.snapshots.set(pool, taken);
    // The next one who asks tries again.
    places.catch(() => this.snapshots.get(pool) === taken && this.snapshots.delete(pool));
    return places;
  }

  /** A state is shown without a position rather than not at all. */
  private async unless<T>(asked: () => Promise<T>): Promise<T | undefined> {
    try {
      return await asked();
    } catch (error) {
      this.ports.logger.debug({ err: error }, 'positions in the queue could not be read');
      return undefined;
    }
  }
}

function placesOf(rows: readonly RunRow[]): Places {
  return {
    ofRun: new Map(rows.map(({ _id }, index) => [_id, index + 1])),
    ofSession: new Map(rows.map(({ sessionId }, index) => [sessionId, index + 1])),
  };
}

import type { Head, RunRowState } from '@margay/log';
import type { Collection } from 'mongodb';
import { Projector } from '../store/project';

/** Projection of one run: the queue that dispatch reads. */
export interface RunRow {
  _id: string;
  tenantId: string;
  sessionId: string;
  /** Commit this row shows. */
  c: number;
  pool: string;
  state: RunRowState;
  epoch: number;
  owner: string | null;
  principal: string;
  queuedAtMs: number;
  /** Time of the commit that this row shows, milliseconds since the epoch. */
  changedAtMs: number;
}

/** Running runs of one principal. */
export interface RunningCount {
  tenantId: string;
  principal: string;
  runs: number;
}

const OWNED_MAX = 5_000;
/** How often the queue is asked for runs of others, where one principal fills what it shows. */
const PAGES_MAX = 5;

/** The collection `runs`. */
export class RunRepository {
  private readonly projector: Projector<RunRow>;

  constructor(private readonly rows: Collection<RunRow>) {
    this.projector = new Projector(rows);
  }

  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ pool: 1, state: 1, queuedAtMs: 1 }, { name: 'queue_v1' });
    await this.rows.createIndex({ owner: 1, state: 1 }, { name: 'owner_v1' });
  }

  /** Guarded by the commit number like every projection. */
  project(row: RunRow): Promise<void> {
    return this.projector.project(row);
  }

  /** Oldest queued runs of a pool; also those of principals who stand behind somebody with a full page of them. */
  async queued(pool: string, limit: number): Promise<RunRow[]> {
    const found = await this.queuedPage(pool, limit, []);
    for (let pages = 1, isFull = found.length === limit; isFull && pages < PAGES_MAX; pages++) {
      const page = await this.queuedPage(pool, limit, [...new Set(found.map(({ principal }) => principal))]);
      isFull = page.length === limit;
      found.push(...page);
    }
    return found.toSorted((a, b) => a.queuedAtMs - b.queuedAtMs);
  }

  runningOf(owner: string): Promise<RunRow[]> {
    return this.rows.find({ owner, state: 'running' }).limit(OWNED_MAX).toArray();
  }

  /** Running runs of a pool, counted per principal. */
  async running(pool: string): Promise<RunningCount[]> {
    const counted = this.rows.aggregate<{ _id: Omit<RunningCount, 'runs'>; runs: number }>([
      { $match: { pool, state: 'running' } },
      { $group: { _id: { tenantId: '$tenantId', principal: '$principal' }, runs: { $sum: 1 } } },
    ]);
    return (await counted.toArray()).map(({ _id, runs }) => ({ ..._id, runs }));
  }

  /** Runs of a pool that want a runner or have one: what scaling goes by. */
  async demand(pool: string): Promise<{ queued: number; running: number }> {
    const count = (state: RunRowState) => this.rows.countDocuments({ pool, state });
    const [queued, running] = await Promise.all([count('queued'), count('running')]);
    return { queued, running };
  }

  /** Distinct owners of running runs. */
  async owners(pool: string): Promise<string[]> {
    const owners: (string | null)[] = await this.rows.distinct('owner', { pool, state: 'running' });
    return owners.filter((owner) => owner !== null);
  }

  private queuedPage(pool: string, limit: number, without: string[]): Promise<RunRow[]> {
    const others = without.length === 0 ? {} : { principal: { $nin: without } };
    return this.rows
      .find({ pool, state: 'queued', ...others })
      .sort({ queuedAtMs: 1 })
      .limit(limit)
      .toArray();
  }
}

/** The row of a run that is the head's present one. */
export function runRowOf(head: Head): RunRow | undefined {
  if (!head.run) return undefined;
  return {
    _id: head.run.id,
    tenantId: head.tenantId,
    sessionId: head.sessionId,
    c: head.c,
    pool: head.run.pool,
    state: head.run.state,
    epoch: head.epoch,
    owner: head.run.owner,
    principal: head.run.principal,
    queuedAtMs: Math.floor(head.run.acceptedTs / 1_000),
    changedAtMs: Math.floor(head.ts / 1_000),
  };
}

/** The row that a run which is not the head's present one has: it is over. */
export function endedRowOf(head: Head, runId: string, epoch: number): RunRow {
  const { tenantId, sessionId, c } = head;
  const changedAtMs = Math.floor(head.ts / 1_000);
  const gone = { pool: '', state: 'done' as const, owner: null, principal: '', queuedAtMs: 0 };
  return { _id: runId, tenantId, sessionId, c, epoch, changedAtMs, ...gone };
}

/** What the row of a run should say, as this head shows it. */
export function rowOfRun(head: Head, runId: string, epoch: number): RunRow {
  const present = runRowOf(head);
  return present?._id === runId ? present : endedRowOf(head, runId, epoch);
}

import type { Head, RunRowState } from '@margay/log';
import type { Collection, Filter } from 'mongodb';
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
  /** When the first of its questions is to be timed out, milliseconds since the epoch; null = none. */
  dueAtMs: number | null;
  /** To be driven in a process of its own. */
  isIsolated: boolean;
}

/** Running runs of one principal. */
export interface RunningCount {
  tenantId: string;
  principal: string;
  runs: number;
}

/** What runs of a pool want of its runners. */
export interface Demand {
  queued: number;
  running: number;
  /** Slots of all runners of the pool, taken or free. */
  slots: number;
  oldestQueuedSeconds: number;
}

const OWNED_MAX = 5_000;
/** How often the queue is asked for runs of others, where some tenants or principals fill what it shows. */
const PAGES_MAX = 10;
/** Positions behind so many others are not counted exactly. */
const AHEAD_MAX = 10_000;

/** The collection `runs`. */
export class RunRepository {
  private readonly projector: Projector<RunRow>;

  constructor(private readonly rows: Collection<RunRow>) {
    this.projector = new Projector(rows);
  }

  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ pool: 1, state: 1, queuedAtMs: 1 }, { name: 'queue_v1' });
    await this.rows.createIndex({ owner: 1, state: 1 }, { name: 'owner_v1' });
    await this.rows.createIndex({ sessionId: 1 }, { name: 'session_v1' });
    await this.rows.createIndex({ dueAtMs: 1 }, { name: 'due_v1' });
    await this.rows.createIndex({ state: 1, tenantId: 1, principal: 1 }, { name: 'load_v1' });
  }

  /** Guarded by the commit number like every projection. */
  project(row: RunRow): Promise<void> {
    return this.projector.project(row);
  }

  /**
   * Oldest queued runs of a pool, oldest first; also those of tenants, and of principals of a tenant, who stand behind
   * somebody with a full page of them.
   */
  async queued(pool: string, limit: number): Promise<RunRow[]> {
    const first = await this.queuedPage({ pool }, limit);
    if (first.length < limit) return first;
    const tenants = new Set(first.map(({ tenantId }) => tenantId));
    const others = await this.pagesBehind({ pool }, limit, 'tenantId', tenants);
    const found = [...first, ...others];
    for (const tenantId of [...tenants].slice(0, PAGES_MAX)) {
      const seen = found.filter((row) => row.tenantId === tenantId).map(({ principal }) => principal);
      found.push(...(await this.pagesBehind({ pool, tenantId }, limit, 'principal', new Set(seen))));
    }
    return found.toSorted((a, b) => a.queuedAtMs - b.queuedAtMs);
  }

  /** Runs of a pool that have waited for a runner since before this time, oldest first. */
  waitingSince(pool: string, beforeMs: number, limit: number): Promise<RunRow[]> {
    return this.rows
      .find({ pool, state: 'queued', changedAtMs: { $lte: beforeMs } })
      .sort({ queuedAtMs: 1 })
      .limit(limit)
      .toArray();
  }

  /** How many runs were queued in a pool before this time, counted no further than 10,000. */
  ahead(pool: string, queuedAtMs: number): Promise<number> {
    return this.rows.countDocuments({ pool, state: 'queued', queuedAtMs: { $lt: queuedAtMs } }, { limit: AHEAD_MAX });
  }

  /** Runs with a question whose time is over. */
  due(nowMs: number, limit: number): Promise<RunRow[]> {
    return this.rows
      .find({ dueAtMs: { $gt: 0, $lte: nowMs } })
      .limit(limit)
      .toArray();
  }

  runningOf(owner: string): Promise<RunRow[]> {
    return this.rows.find({ owner, state: 'running' }).limit(OWNED_MAX).toArray();
  }

  /** Running runs of all pools, counted per principal. Runs that wait for somebody hold no slot and don't count. */
  async running(): Promise<RunningCount[]> {
    const counted = this.rows.aggregate<{ _id: Omit<RunningCount, 'runs'>; runs: number }>([
      { $match: { state: 'running' } },
      { $group: { _id: { tenantId: '$tenantId', principal: '$principal' }, runs: { $sum: 1 } } },
    ]);
    return (await counted.toArray()).map(({ _id, runs }) => ({ ..._id, runs }));
  }

  /** Runs of a pool that want a runner or have one: what scaling goes by. */
  async demand(pool: string): Promise<Omit<Demand, 'slots'>> {
    const count = (state: RunRowState) => this.rows.countDocuments({ pool, state });
    const oldest = this.queuedPage({ pool }, 1);
    const [queued, running, [first]] = await Promise.all([count('queued'), count('running'), oldest]);
    const oldestQueuedSeconds = first ? Math.max(0, Math.round((Date.now() - first.queuedAtMs) / 1_000)) : 0;
    return { queued, running, oldestQueuedSeconds };
  }

  /** Distinct owners of running runs. */
  async owners(): Promise<string[]> {
    const owners: (string | null)[] = await this.rows.distinct('owner', { state: 'running' });
    return owners.filter((owner) => owner !== null);
  }

  /** Pages of those who are not seen yet, until one is not full. */
  private async pagesBehind(
    filter: Filter<RunRow>,
    limit: number,
    field: 'tenantId' | 'principal',
    seen: Set<string>,
  ): Promise<RunRow[]> {
    const found: RunRow[] = [];
    for (let pages = 0; pages < PAGES_MAX; pages++) {
      const page = await this.queuedPage({ ...filter, [field]: { $nin: [...seen] } }, limit);
      found.push(...page);
      if (page.length < limit) break;
      for (const row of page) seen.add(row[field]);
    }
    return found;
  }

  private queuedPage(filter: Filter<RunRow>, limit: number): Promise<RunRow[]> {
    return this.rows
      .find({ state: 'queued', ...filter })
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
    dueAtMs: dueAtMs(head),
    isIsolated: head.run.isolated === true,
  };
}

function dueAtMs({ questions = [] }: Head): number | null {
  const due = questions.flatMap(({ expiresTs }) => (expiresTs === null ? [] : [expiresTs]));
  return due.length === 0 ? null : Math.ceil(Math.min(...due) / 1_000);
}

/** The row that a run which is not the head's present one has: it is over. */
export function endedRowOf(head: Head, runId: string, epoch: number): RunRow {
  const { tenantId, sessionId, c } = head;
  const changedAtMs = Math.floor(head.ts / 1_000);
  const gone = { pool: '', state: 'done' as const, owner: null, principal: '', queuedAtMs: 0, dueAtMs: null, isIsolated: false }; // prettier-ignore
  return { _id: runId, tenantId, sessionId, c, epoch, changedAtMs, ...gone };
}

/** What the row of a run should say, as this head shows it. */
export function rowOfRun(head: Head, runId: string, epoch: number): RunRow {
  const present = runRowOf(head);
  return present?._id === runId ? present : endedRowOf(head, runId, epoch);
}

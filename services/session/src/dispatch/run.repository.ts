import type { Head, RunRowState } from '@margay/log';
import type { Collection } from 'mongodb';
import { isDuplicateKey } from '../store/mongo-errors';

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
}

/** The collection `runs`. */
export class RunRepository {
  constructor(private readonly rows: Collection<RunRow>) {}

  async createIndexes(): Promise<void> {
    await this.rows.createIndex({ pool: 1, state: 1, queuedAtMs: 1 }, { name: 'queue_v1' });
    await this.rows.createIndex({ owner: 1, state: 1 }, { name: 'owner_v1' });
  }

  /** Guarded by the commit number like every projection. */
  async project(row: RunRow): Promise<void> {
    const { _id, c, ...fields } = row;
    try {
      await this.rows.updateOne({ _id, c: { $lt: c } }, { $set: { c, ...fields } }, { upsert: true });
    } catch (error) {
      if (!isDuplicateKey(error)) throw error;
    }
  }

  queued(pool: string, limit: number): Promise<RunRow[]> {
    return this.rows.find({ pool, state: 'queued' }).sort({ queuedAtMs: 1 }).limit(limit).toArray();
  }

  runningOf(owner: string): Promise<RunRow[]> {
    return this.rows.find({ owner, state: 'running' }).limit(5_000).toArray();
  }

  /** Running runs of a pool per tenant. */
  async runningByTenant(pool: string): Promise<Map<string, number>> {
    const counts = new Map<string, number>();
    const running = this.rows
      .find({ pool, state: 'running' })
      .limit(20_000)
      .project<{ tenantId: string }>({ tenantId: 1 });
    for await (const { tenantId } of running) counts.set(tenantId, (counts.get(tenantId) ?? 0) + 1);
    return counts;
  }

  /** Runs of a pool that want a runner or have one: what scaling goes by. */
  async demand(pool: string): Promise<{ queued: number; running: number }> {
    const count = (state: RunRowState) => this.rows.find({ pool, state }).limit(100_000).project({ _id: 1 }).toArray();
    const [queued, running] = await Promise.all([count('queued'), count('running')]);
    return { queued: queued.length, running: running.length };
  }

  /** Distinct owners of running runs. */
  async owners(pool: string): Promise<string[]> {
    const running = this.rows.find({ pool, state: 'running' }).limit(20_000).project<{ owner: string }>({ owner: 1 });
    return [...new Set((await running.toArray()).map(({ owner }) => owner))];
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
  };
}

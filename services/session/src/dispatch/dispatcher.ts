import { subjects } from '@margay/contracts';
import type { CommitDocument, Head } from '@margay/log';
import type { Logger, NatsBus } from '@margay/platform';
import { LRUCache } from 'lru-cache';
import type { SessionLog } from '../commits/session-log';
import type { AttachedRunner } from './attached-runner';
import { Load, pickFairly } from './fairness';
import type { RunGrants } from './run-grants';
import { rowOfRun, runRowOf, type RunRepository, type RunRow } from './run.repository';

const POLL_MS = 1_000;
const CANDIDATES = 200;
const CLAIMED_MAX = 20_000;

export interface DispatcherPorts {
  log: SessionLog;
  runs: RunRepository;
  grants: RunGrants;
  bus: NatsBus;
  logger: Logger;
  /** Takes back a run that was claimed for a runner which is gone. */
  giveBack: (row: RunRow) => Promise<void>;
  /** @param queuedMs how long it was queued, as far as this replica knows */
  onAssigned: (row: RunRow, queuedMs: number | undefined) => void;
}

/**
 * Gives queued runs to attached runners with free slots. The store is the queue; a nudge, a freed slot and a poll each
 * second lead to a look at it. Losers of a claim pick again.
 */
export class Dispatcher {
  /** No claim begins any more. */
  isStopped = false;
  private readonly runners = new Map<string, AttachedRunner>();
  private readonly running = new Set<string>();
  private readonly again = new Set<string>();
  /** Pools whose queue held runs when no slot was free: new runs wait behind those. */
  private readonly backlogged = new Set<string>();
  /** (run, epoch) pairs claimed here: their queue rows may say `queued` for a moment longer. */
  private readonly claimed = new LRUCache<string, true>({ max: CLAIMED_MAX });
  /** When runs were seen to be queued, on the monotonic clock. */
  private readonly queuedAtMs = new LRUCache<string, number>({ max: CLAIMED_MAX });
  private timer?: NodeJS.Timeout;
  private readonly stops: (() => void)[] = [];

  constructor(
    private readonly ports: DispatcherPorts,
    private readonly pools: string[],
  ) {}

  start(): void {
    for (const pool of this.pools)
      this.stops.push(this.ports.bus.subscribe(subjects.dispatch(pool), () => void this.dispatch(pool)));
    this.stops.push(this.ports.log.onCommitted((document) => this.onCommitted(document)));
    this.timer = setInterval(() => this.pools.forEach((pool) => void this.dispatch(pool)), POLL_MS);
    this.timer.unref();
  }

  /** Claims that are under way are still finished; no other begins. */
  stop(): void {
    this.isStopped = true;
    clearInterval(this.timer);
    for (const stop of this.stops) stop();
  }

  /** Sends all runners to other replicas. */
  hangUp(): void {
    for (const runner of this.runners.values()) runner.hangUp();
  }

  /** Its first heartbeat says how many slots are free. */
  attach(runner: AttachedRunner): void {
    this.runners.set(runner.instance, runner);
  }

  /** @returns false where the runner attached again meanwhile */
  detach(runner: AttachedRunner): boolean {
    if (this.runners.get(runner.instance) !== runner) return false;
    this.runners.delete(runner.instance);
    return true;
  }

  /** Free slots of the runners attached here, per pool. */
  slots(pool: string): { free: number; held: number } {
    const runners = [...this.runners.values()].filter((runner) => runner.pool === pool);
    return {
      free: runners.reduce((sum, { free }) => sum + free, 0),
      held: runners.reduce((sum, { held }) => sum + held.length, 0),
    };
  }

  /** Looks at the queue of a pool until it is empty or no slot is free. One look at a time; a call meanwhile repeats it. */
  async dispatch(pool: string): Promise<void> {
    if (this.running.has(pool)) {
      this.again.add(pool);
      return;
    }
    this.running.add(pool);
    try {
      do {
        this.again.delete(pool);
        await this.drainQueue(pool);
      } while (this.again.has(pool) && !this.isStopped);
    } catch (error) {
      this.ports.logger.warn({ err: error, pool }, 'the run queue could not be read');
    } finally {
      this.running.delete(pool);
    }
  }

  /** A run that was just queued here starts at once if a runner is free: the claim makes it safe, the row may follow. */
  private onCommitted({ head, effects }: CommitDocument): void {
    for (const effect of effects) {
      if (effect.kind !== 'run') continue;
      if (effect.state === 'queued') this.queuedAtMs.set(effect.runId, performance.now());
      if (effect.state !== 'queued') this.onRunLeft(effect.runId, effect.owner);
      else if (head.run) this.offer(head, head.run.pool);
    }
  }

  private onRunLeft(runId: string, owner: string | null): void {
    for (const runner of this.runners.values()) {
      if (runner.instance === owner || !runner.onRunLeft(runId)) continue;
      if (this.backlogged.has(runner.pool)) void this.dispatch(runner.pool);
    }
  }

  private offer(head: Head, pool: string): void {
    const row = runRowOf(head);
    if (!row) return;
    this.onRunLeft(row._id, null);
    const runner = this.backlogged.has(pool) ? undefined : this.freest(pool);
    if (runner) this.claim(runner, row);
    else this.ports.bus.publish(subjects.dispatch(pool), '');
  }

  private async drainQueue(pool: string): Promise<void> {
    if (!this.freest(pool)) return;
    const rows = await this.ports.runs.queued(pool, CANDIDATES);
    let queued = rows.filter((row) => !this.claimed.has(lifeOf(row)));
    for (const { _id } of queued) if (!this.queuedAtMs.has(_id)) this.queuedAtMs.set(_id, performance.now());
    this.backlogged.delete(pool);
    if (queued.length === 0) return;
    const load = new Load(await this.ports.runs.running(pool));
    while (queued.length > 0) {
      const runner = this.freest(pool);
      if (!runner) break;
      const row = pickFairly(queued, load);
      queued = queued.filter((other) => other !== row);
      load.add(row.tenantId, row.principal);
      this.claim(runner, row);
    }
    if (queued.length > 0) this.backlogged.add(pool);
  }

  private freest(pool: string): AttachedRunner | undefined {
    if (this.isStopped) return undefined;
    let best: AttachedRunner | undefined;
    for (const runner of this.runners.values())
      if (runner.pool === pool && runner.free > (best?.free ?? 0)) best = runner;
    return best;
  }

  /** Beside the look at the queue: one session whose insert takes long holds up no other. */
  private claim(runner: AttachedRunner, row: RunRow): void {
    const life = lifeOf(row);
    if (this.claimed.has(life)) return;
    this.claimed.set(life, true);
    runner.reserve();
    this.commitClaim(runner, row)
      .catch((error: unknown) => {
        this.claimed.delete(life);
        const { sessionId, _id: runId } = row;
        this.ports.logger.warn({ err: error, sessionId, runId }, 'a queued run could not be claimed');
      })
      .finally(() => runner.giveBack());
  }

  private async commitClaim(runner: AttachedRunner, row: RunRow): Promise<void> {
    const { _id: runId, sessionId, epoch } = row;
    const commitId = `claim.${runId}.${epoch}.${runner.instance}`;
    const claim = { kind: 'claim' as const, commitId, runId, epoch, owner: runner.instance };
    const outcome = await this.ports.log.submit(sessionId, claim);
    if (outcome.ok) return this.assign(runner, outcome.head, outcome.c, row);
    // A refused claim shows that the row is stale: it is written again from the head on which the claim was refused.
    await this.ports.runs.project(rowOfRun(outcome.head, runId, epoch));
  }

  private async assign(runner: AttachedRunner, head: Head, claimC: number, row: RunRow): Promise<void> {
    const { run } = head;
    const epoch = row.epoch + 1;
    // Cancelled within the same commit.
    if (run?.id !== row._id || head.epoch !== epoch) return;
    // The runner left while the claim was being stored: nobody would learn of the assignment.
    if (this.runners.get(runner.instance) !== runner) return this.ports.giveBack({ ...row, epoch });
    const grant = await this.ports.grants.sign(head, run, epoch);
    const { sessionId } = head;
    this.ports.logger.info({ sessionId, runId: run.id, epoch, runner: runner.instance }, 'a run was assigned');
    runner.assign({ sessionId, runId: run.id, epoch, claimC, grant, traceparent: run.traceparent ?? '' });
    const queuedAtMs = this.queuedAtMs.get(row._id);
    this.queuedAtMs.delete(row._id);
    this.ports.onAssigned(row, queuedAtMs === undefined ? undefined : performance.now() - queuedAtMs);
  }
}

/** One life of a run: it is claimed at most once. */
function lifeOf({ _id, epoch }: RunRow): string {
  return `${_id} ${epoch}`;
}

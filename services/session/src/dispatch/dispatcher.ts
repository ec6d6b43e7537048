import { subjects } from '@margay/contracts';
import type { CommitDocument, Head } from '@margay/log';
import { faultPoint, type Logger, type NatsBus } from '@margay/platform';
import { LRUCache } from 'lru-cache';
import type { SessionLog } from '../commits/session-log';
import type { AttachedRunner } from './attached-runner';
import { AttachedRunners } from './attached-runners';
import type { TenantLimit } from './fairness';
import { HandBacks } from './hand-backs';
import type { RunGrants } from './run-grants';
import type { QueueLook, RunQueue } from './run-queue';
import { rowOfRun, runRowOf, type RunRepository, type RunRow } from './run.repository';
import type { TenantLimits } from './tenant-limits';

const POLL_MS = 1_000;
/** Another replica counts for a tenant near its cap: it is done soon. */
const COUNTED_ELSEWHERE_MS = 50;
/** A run that was just queued here has its row in the store by then. */
const FRESH_MS = 2_000;
const CLAIMED_MAX = 20_000;

export interface DispatcherPorts {
  log: SessionLog;
  runs: Pick<RunRepository, 'project'>;
  queue: RunQueue;
  limits: TenantLimits;
  grants: RunGrants;
  bus: NatsBus;
  logger: Logger;
  /** Takes back a run that was claimed for a runner which is gone. */
  giveBack: (row: RunRow) => Promise<void>;
  /** Resolves once what a commit of this replica owes to the queue was tried. */
  applied: (sessionId: string, c: number) => Promise<void>;
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
  private readonly runners = new AttachedRunners();
  /** Pools that are being looked at, and since when. */
  private readonly looking = new Map<string, number>();
  private readonly again = new Set<string>();
  /** Pools whose queue held runs when no slot was free: new runs wait behind those. */
  private readonly backlogged = new Set<string>();
  /** Tenants with runs in the queue of a pool that wait for others of theirs to leave. */
  private readonly capped = new Map<string, Set<string>>();
  private readonly handBacks = new HandBacks();
  /** Runs that were just queued here and go through the queue. */
  private readonly fresh = new LRUCache<string, RunRow>({ max: CLAIMED_MAX, ttl: FRESH_MS });
  /** Claims whose rows may not show them yet. */
  private readonly underWay = new Map<string, RunRow>();
  /** (run, epoch) pairs claimed here: their queue rows may say `queued` for a moment longer. */
  private readonly claimed = new LRUCache<string, true>({ max: CLAIMED_MAX });
  /** When runs were seen to be queued, on the monotonic clock. */
  private readonly queuedAtMs = new LRUCache<string, number>({ max: CLAIMED_MAX });
  private timer?: NodeJS.Timeout;
  private soonTimer?: NodeJS.Timeout;
  private readonly stops: (() => void)[] = [];

  constructor(
    private readonly ports: DispatcherPorts,
    private readonly pools: string[],
  ) {}

  start(): void {
    for (const pool of this.pools)
      this.stops.push(this.ports.bus.subscribe(subjects.dispatch(pool), () => void this.dispatch(pool)));
    this.stops.push(this.ports.bus.subscribe(subjects.config('tenants'), () => this.onLimitsChanged()));
    this.stops.push(this.ports.log.onCommitted((document) => this.onCommitted(document)));
    this.timer = setInterval(() => this.dispatchAll(), POLL_MS);
    this.timer.unref();
  }

  /** Claims that are under way are still finished; no other begins. */
  stop(): void {
    this.isStopped = true;
    clearInterval(this.timer);
    clearTimeout(this.soonTimer);
    for (const stop of this.stops) stop();
  }

  /** For how long the longest look at a queue has been going on; 0 while none is. */
  lookingMs(nowMs = performance.now()): number {
    return Math.max(0, ...[...this.looking.values()].map((sinceMs) => nowMs - sinceMs));
  }

  /** Sends all runners to other replicas. */
  hangUp(): void {
    this.runners.hangUp();
  }

  /** Its first heartbeat says how many slots are free. */
  attach(runner: AttachedRunner): void {
    this.runners.add(runner);
  }

  /** @returns false where the runner attached again meanwhile */
  detach(runner: AttachedRunner): boolean {
    return this.runners.remove(runner);
  }

  /** Free slots of the runners attached here, per pool. */
  slots(pool: string): { free: number; held: number } {
    return this.runners.slots(pool);
  }

  /** Looks at the queue of a pool until it is empty or no slot is free. One look at a time; a call meanwhile repeats it. */
  async dispatch(pool: string): Promise<void> {
    if (this.looking.has(pool)) {
      this.again.add(pool);
      return;
    }
    this.looking.set(pool, performance.now());
    try {
      do {
        this.again.delete(pool);
        await this.drainQueue(pool);
      } while (this.again.has(pool) && !this.isStopped);
    } catch (error) {
      this.ports.logger.warn({ err: error, pool }, 'the run queue could not be read');
    } finally {
      this.looking.delete(pool);
    }
  }

  /** A run that was just queued here starts at once if a runner is free: the claim makes it safe, the row may follow. */
  private onCommitted(document: CommitDocument): void {
    const { head, effects } = document;
    for (const effect of effects) {
      if (effect.kind !== 'run') continue;
      if (effect.state === 'queued') this.queuedAtMs.set(effect.runId, performance.now());
      if (effect.state !== 'queued') this.onRunLeft(effect.runId, effect.owner);
      else if (head.run) this.offer(head, head.run.pool);
      if (effect.state !== 'running') this.onLessRunning(document);
    }
  }

  private onRunLeft(runId: string, owner: string | null): void {
    for (const pool of this.runners.onRunLeft(runId, owner)) if (this.backlogged.has(pool)) void this.dispatch(pool);
  }

  /** A tenant may have come below its cap: its runs are looked at once the count shows it, also by other replicas. */
  private onLessRunning({ sessionId, c, tenantId }: CommitDocument): void {
    const pools = this.pools.filter((pool) => this.capped.get(pool)?.has(tenantId));
    if (pools.length === 0) return;
    void this.ports.applied(sessionId, c).then(() => {
      if (!this.isStopped) for (const pool of pools) this.ports.bus.publish(subjects.dispatch(pool), '');
      for (const pool of pools) void this.dispatch(pool);
    });
  }

  private onLimitsChanged(): void {
    this.ports.limits.forget();
    this.dispatchAll();
  }

  private dispatchAll(): void {
    for (const pool of this.pools) void this.dispatch(pool);
  }

  private offer(head: Head, pool: string): void {
    const row = runRowOf(head);
    if (!row) return;
    this.onRunLeft(row._id, null);
    if (this.handBacks.isDelayed(row)) return;
    if (this.backlogged.has(pool) || !this.freest(pool)) return this.ports.bus.publish(subjects.dispatch(pool), '');
    const limit = this.ports.limits.peek(row.tenantId);
    if (limit) this.startNew(row, limit);
    else void this.learnLimit(row);
  }

  private startNew(row: RunRow, limit: TenantLimit): void {
    const runner = this.freest(row.pool);
    if (runner && limit.maxRunning === Infinity) return void this.claim(runner, row);
    // Runs of its tenant have to be counted first.
    this.fresh.set(lifeOf(row), row);
    void this.dispatch(row.pool);
  }

  private async learnLimit(row: RunRow): Promise<void> {
    try {
      const limitOf = await this.ports.limits.of([row.tenantId]);
      this.startNew(row, limitOf(row.tenantId));
    } catch (error) {
      // The queue is looked at each second.
      this.ports.logger.debug({ err: error }, 'the limit of a tenant could not be read');
    }
  }

  private async drainQueue(pool: string): Promise<void> {
    if (!this.freest(pool)) return;
    const look = await this.ports.queue.look(pool, {
      fresh: [...this.fresh.values()].filter((row) => row.pool === pool),
      underWay: [...this.underWay.values()],
      isOffered: (row) => this.isOffered(row),
    });
    this.backlogged.delete(pool);
    this.capped.delete(pool);
    if (!look) return;
    const gated: Promise<void>[] = [];
    for (let runner = this.freest(pool); runner; runner = this.freest(pool)) {
      const row = look.next();
      if (!row) break;
      const claimed = this.claim(runner, row);
      if (look.isGated(row.tenantId)) gated.push(claimed);
    }
    if (look.hasBacklog()) this.backlogged.add(pool);
    this.capped.set(pool, new Set(look.cappedTenants()));
    if (look.isPartial) this.lookAgainSoon();
    if (gated.length > 0) void this.leave(pool, look, gated);
    else void look.leave();
  }

  /** Beside the looks that follow: a claim that takes long holds up its own tenant only. */
  private async leave(pool: string, look: QueueLook, gated: Promise<void>[]): Promise<void> {
    await Promise.all(gated);
    await look.leave();
    // Meanwhile its tenants were left out.
    if (this.capped.has(pool)) void this.dispatch(pool);
  }

  private lookAgainSoon(): void {
    if (this.isStopped) return;
    clearTimeout(this.soonTimer);
    this.soonTimer = setTimeout(() => this.dispatchAll(), COUNTED_ELSEWHERE_MS).unref();
  }

  private isOffered(row: RunRow): boolean {
    if (this.claimed.has(lifeOf(row)) || this.handBacks.isDelayed(row)) return false;
    if (!this.queuedAtMs.has(row._id)) this.queuedAtMs.set(row._id, performance.now());
    return true;
  }

  private freest(pool: string): AttachedRunner | undefined {
    return this.isStopped ? undefined : this.runners.freest(pool);
  }

  /**
   * Beside the look at the queue: one session whose insert takes long holds up no other.
   * @returns resolves once the count of running runs shows the outcome; never rejects
   */
  private async claim(runner: AttachedRunner, row: RunRow): Promise<void> {
    const life = lifeOf(row);
    if (this.claimed.has(life)) return;
    this.claimed.set(life, true);
    this.fresh.delete(life);
    this.underWay.set(life, row);
    runner.reserve();
    try {
      const c = await this.commitClaim(runner, row).finally(() => runner.giveBack());
      if (c !== undefined) await this.ports.applied(row.sessionId, c);
    } catch (error) {
      this.claimed.delete(life);
      const { sessionId, _id: runId } = row;
      this.ports.logger.warn({ err: error, sessionId, runId }, 'a queued run could not be claimed');
    } finally {
      this.underWay.delete(life);
    }
  }

  /** @returns number of the commit, if the claim was stored */
  private async commitClaim(runner: AttachedRunner, row: RunRow): Promise<number | undefined> {
    const { _id: runId, sessionId, epoch } = row;
    const commitId = `claim.${runId}.${epoch}.${runner.instance}`;
    const claim = { kind: 'claim' as const, commitId, runId, epoch, owner: runner.instance };
    const outcome = await this.ports.log.submit(sessionId, claim);
    if (outcome.ok) {
      await this.assign(runner, outcome.head, outcome.c, row);
      return outcome.c;
    }
    // A refused claim shows that the row is stale: it is written again from the head on which the claim was refused.
    await this.ports.runs.project(rowOfRun(outcome.head, runId, epoch));
    return undefined;
  }

  private async assign(runner: AttachedRunner, head: Head, claimC: number, row: RunRow): Promise<void> {
    const { run } = head;
    const epoch = row.epoch + 1;
    // Cancelled within the same commit.
    if (run?.id !== row._id || head.epoch !== epoch) return;
    const { sessionId } = head;
    await faultPoint('session.before-assign', () => `${sessionId} ${run.id} ${runner.instance}`);
    // The runner left while the claim was being stored: nobody would learn of the assignment.
    if (!this.runners.has(runner)) return this.ports.giveBack({ ...row, epoch });
    const grant = await this.ports.grants.sign(head, run, epoch);
    this.ports.logger.info({ sessionId, runId: run.id, epoch, runner: runner.instance }, 'a run was assigned');
    runner.assign({
      sessionId,
      runId: run.id,
      epoch,
      claimC,
      grant,
      traceparent: run.traceparent ?? '',
      isolated: run.isolated === true,
    });
    const queuedAtMs = this.queuedAtMs.get(row._id);
    this.queuedAtMs.delete(row._id);
    this.ports.onAssigned(row, queuedAtMs === undefined ? undefined : performance.now() - queuedAtMs);
  }
}

/** One life of a run: it is claimed at most once. */
function lifeOf({ _id, epoch }: RunRow): string {
  return `${_id} ${epoch}`;
}

import { subjects } from '@margay/contracts';
import type { CommitDocument, Head } from '@margay/log';
import type { NatsBus } from '@margay/platform';
import { LRUCache } from 'lru-cache';
import type { AttachedRunner } from './attached-runner';
import { AttachedRunners } from './attached-runners';
import type { TenantLimit } from './fairness';
import { HandBacks } from './hand-backs';
import { lifeOf, RunClaims, type RunClaimsPorts } from './run-claims';
import type { QueueLook, RunQueue } from './run-queue';
import { runRowOf, type RunRow } from './run.repository';
import type { TenantLimits } from './tenant-limits';

const POLL_MS = 1_000;
/** Another replica counts for a tenant near its cap: it is done soon. */
const COUNTED_ELSEWHERE_MS = 50;
/** A run that was just queued here has its row in the store by then. */
const FRESH_MS = 2_000;
const FRESH_MAX = 20_000;

export interface DispatcherPorts extends RunClaimsPorts {
  queue: RunQueue;
  limits: TenantLimits;
  bus: NatsBus;
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
  private readonly fresh = new LRUCache<string, RunRow>({ max: FRESH_MAX, ttl: FRESH_MS });
  private readonly claims: RunClaims;
  private timer?: NodeJS.Timeout;
  private soonTimer?: NodeJS.Timeout;
  private readonly stops: (() => void)[] = [];

  constructor(
    private readonly ports: DispatcherPorts,
    private readonly pools: string[],
  ) {
    this.claims = new RunClaims(ports, (runner) => this.runners.has(runner));
  }

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
      if (effect.state === 'queued') this.claims.sawQueued(effect.runId);
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
    // Who gives a run back may be leaving: its releases can be quicker than its heartbeat.
    const giver = this.runners.holderOf(row._id);
    this.onRunLeft(row._id, null);
    if (this.handBacks.isDelayed(row)) return;
    if (this.backlogged.has(pool) || !this.freest(pool, giver))
      return this.ports.bus.publish(subjects.dispatch(pool), '');
    const limit = this.ports.limits.peek(row.tenantId);
    if (limit) this.startNew(row, limit, giver);
    else void this.learnLimit(row, giver);
  }

  private startNew(row: RunRow, limit: TenantLimit, giver: AttachedRunner | undefined): void {
    const runner = this.freest(row.pool, giver);
    if (runner && limit.maxRunning === Infinity) return void this.claims.claim(runner, row);
    // Runs of its tenant have to be counted first.
    this.fresh.set(lifeOf(row), row);
    void this.dispatch(row.pool);
  }

  private async learnLimit(row: RunRow, giver: AttachedRunner | undefined): Promise<void> {
    try {
      const limitOf = await this.ports.limits.of([row.tenantId]);
      this.startNew(row, limitOf(row.tenantId), giver);
    } catch (error) {
      // The queue is looked at each second.
      this.ports.logger.debug({ err: error }, 'the limit of a tenant could not be read');
    }
  }

  private async drainQueue(pool: string): Promise<void> {
    if (!this.freest(pool)) return;
    const look = await this.ports.queue.look(pool, {
      fresh: [...this.fresh.values()].filter((row) => row.pool === pool),
      underWay: this.claims.pending,
      isOffered: (row) => this.isOffered(row),
    });
    this.backlogged.delete(pool);
    this.capped.delete(pool);
    if (!look) return;
    const gated: Promise<void>[] = [];
    for (let runner = this.freest(pool); runner; runner = this.freest(pool)) {
      const row = look.next();
      if (!row) break;
      const claimed = this.claims.claim(runner, row);
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
    if (this.claims.has(row) || this.handBacks.isDelayed(row)) return false;
    this.claims.sawQueued(row._id);
    return true;
  }

  private freest(pool: string, except?: AttachedRunner): AttachedRunner | undefined {
    return this.isStopped ? undefined : this.runners.freest(pool, except);
  }
}

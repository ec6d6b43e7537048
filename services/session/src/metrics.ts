import type { CommitDocument } from '@margay/log';
import { LabelLimit, type TenantLabel } from '@margay/platform';
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { CommitObserver } from './commits/session-log';

const FAST_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5];

const LAG_OLD_MS = 60_000;
/** Why session itself ends a run that may not go on. */
const PARKED_FOR = ['poison', 'needs_review'];
/** Reasons come from runners. */
const DONE_REASONS_MAX = 40;
const WAIT_SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300];

export interface PoolDemand {
  queued: number;
  running: number;
  oldestQueuedSeconds: number;
}

/** What session measures of itself. */
export class SessionMetrics {
  readonly commitDuration: Histogram;
  readonly commitConflicts: Counter;
  readonly commitUnknownOutcomes: Counter;
  readonly fencedCommands: Counter;
  private readonly effectsLag: Gauge;
  private laggedAtMs = Infinity;
  private readonly dispatchWait: Histogram<'pool' | 'tenant'>;
  readonly takeoverDuration: Histogram;
  readonly janitorRepairs: Counter<'sweep'>;
  readonly takeovers: Counter<'cause'>;
  readonly runnerSlots: Gauge<'pool' | 'state'>;
  private readonly runsEnded: Counter<'done_reason' | 'tenant'>;
  private readonly runsParked: Counter<'reason'>;
  private readonly secretHits: Counter<'kind'>;
  private readonly doneReasons = new LabelLimit(DONE_REASONS_MAX);

  constructor(
    private readonly registry: Registry,
    private readonly tenantLabel: TenantLabel,
    private readonly now: () => number = () => performance.now(),
  ) {
    const registers = [registry];
    const counter = (name: string, help: string) => new Counter({ name, help, registers });
    this.commitConflicts = counter('margay_commit_conflicts_total', 'Inserts whose number another commit had taken');
    this.commitUnknownOutcomes = counter(
      'margay_commit_unknown_outcomes_total',
      'Inserts of which the store did not say whether they are stored',
    );
    this.fencedCommands = counter(
      'margay_fenced_commands_total',
      'Commands refused because their run has moved on to another owner',
    );
    this.effectsLag = new Gauge({
      name: 'margay_effects_lag_seconds',
      help: 'How long the oldest effect found by this replica as janitor has been due',
      registers,
      // Another replica is the janitor by now.
      collect: () => {
        if (this.now() - this.laggedAtMs > LAG_OLD_MS) this.effectsLag.remove();
      },
    });
    this.dispatchWait = new Histogram({
      name: 'margay_dispatch_wait_seconds',
      help: 'From being queued to being given to a runner',
      labelNames: ['pool', ...tenantLabel.names],
      buckets: WAIT_SECONDS,
      registers,
    });
    this.takeoverDuration = new Histogram({
      name: 'margay_takeover_duration_seconds',
      help: 'From the first sign that a runner is gone to the next owner of its run',
      buckets: WAIT_SECONDS,
      registers,
    });
    this.commitDuration = new Histogram({
      name: 'margay_commit_duration_seconds',
      help: 'Time of one insert into the session log',
      buckets: FAST_SECONDS,
      registers,
    });
    this.janitorRepairs = new Counter({
      name: 'margay_janitor_repairs_total',
      help: 'What janitors put right, by kind of sweep',
      labelNames: ['sweep'],
      registers,
    });
    this.takeovers = new Counter({
      name: 'margay_takeovers_total',
      help: 'Runs taken back from a runner',
      labelNames: ['cause'],
      registers,
    });
    this.runnerSlots = new Gauge({
      name: 'margay_runner_slots',
      help: 'Slots of the runners attached here',
      labelNames: ['pool', 'state'],
      registers,
    });
    this.runsEnded = new Counter({
      name: 'margay_runs_ended_total',
      help: 'Runs that this replica wrote the end of',
      labelNames: ['done_reason', ...tenantLabel.names],
      registers,
    });
    this.runsParked = new Counter({
      name: 'margay_runs_parked_total',
      help: 'Runs that this replica ended because they may not go on without a person',
      labelNames: ['reason'],
      registers,
    });
    this.secretHits = new Counter({
      name: 'margay_secret_hits_total',
      help: 'Secrets that turned up where they must not be, and uses of a canary',
      labelNames: ['kind'],
      registers,
    });
    for (const kind of ['secret', 'canary']) this.secretHits.inc({ kind }, 0);
    // The first one must be seen to grow, or no alert tells of it.
    for (const reason of PARKED_FOR) this.runsParked.inc({ reason }, 0);
  }

  found(kind: 'secret' | 'canary'): void {
    this.secretHits.inc({ kind });
  }

  effectsLagged(seconds: number): void {
    this.laggedAtMs = this.now();
    this.effectsLag.set(seconds);
  }

  /** A new run has been given to a runner, so long after it was queued. */
  dispatched({ pool, tenantId }: { pool: string; tenantId: string }, queuedMs: number): void {
    this.dispatchWait.observe({ pool, ...this.tenantLabel.of(tenantId) }, queuedMs / 1_000);
  }

  commitObserver(): CommitObserver {
    return {
      inserted: (seconds) => this.commitDuration.observe(seconds),
      conflicted: () => this.commitConflicts.inc(),
      unknownOutcome: () => this.commitUnknownOutcomes.inc(),
      fenced: () => this.fencedCommands.inc(),
    };
  }

  /** Counts the runs that a commit ends; why, as far as the head still tells. */
  countEnded({ effects, tenantId, head: { lastRun } }: CommitDocument): void {
    for (const effect of effects) {
      if (effect.kind !== 'run' || effect.state !== 'done') continue;
      const last = lastRun?.id === effect.runId ? lastRun : undefined;
      const doneReason = this.doneReasons.of(last?.doneReason ?? 'other');
      this.runsEnded.inc({ done_reason: doneReason, ...this.tenantLabel.of(tenantId) });
      const { failureReason: reason = '' } = last ?? {};
      if (PARKED_FOR.includes(reason)) this.runsParked.inc({ reason });
    }
  }

  /** Runs of these pools, counted when somebody asks; absent while they can't be counted. */
  showDemand(pools: readonly string[], count: (pool: string) => Promise<PoolDemand>): void {
    const counting = new Map<string, Promise<PoolDemand>>();
    // All gauges are asked at once.
    const counted = (pool: string): Promise<PoolDemand> => {
      const running = counting.get(pool) ?? count(pool).finally(() => counting.delete(pool));
      counting.set(pool, running);
      return running;
    };
    const gauge = (name: string, help: string, of: (demand: PoolDemand) => number): void => {
      const shown: Gauge<'pool'> = new Gauge({
        name,
        help,
        labelNames: ['pool'],
        registers: [this.registry],
        collect: async () => {
          const show = async (pool: string) => shown.set({ pool }, of(await counted(pool)));
          await Promise.all(pools.map((pool) => show(pool).catch(() => shown.remove({ pool }))));
        },
      });
    };
    const ofPool = 'Runs of the pool that wait for a runner';
    gauge('margay_dispatch_queued_runs', ofPool, ({ queued }) => queued);
    gauge('margay_dispatch_demand_runs', `${ofPool} or have one`, ({ queued, running }) => queued + running);
    gauge(
      'margay_dispatch_oldest_queued_seconds',
      'How long the oldest run of the pool has been waiting for a runner',
      ({ oldestQueuedSeconds }) => oldestQueuedSeconds,
    );
  }

  /** Whether this replica waits for newer clients to be replaced. */
  showVersionGate(check: () => void): void {
    const gauge: Gauge = new Gauge({
      name: 'margay_version_gate_closed',
      help: '1 while this process waits for older session replicas, or newer clients, to be replaced',
      registers: [this.registry],
      collect: () => gauge.set(isRefused(check) ? 1 : 0),
    });
  }

  /** What the store says when somebody asks; absent while it says nothing. */
  showStore(measures: {
    clockSkewMs: () => Promise<number | undefined>;
    backupAgeMs: () => Promise<number | undefined>;
  }) {
    this.secondsGauge('margay_clock_skew_seconds', "How far this process's clock is off the store's", measures.clockSkewMs); // prettier-ignore
    this.secondsGauge('margay_backup_age_seconds', 'Since the last good backup was finished', measures.backupAgeMs);
  }

  private secondsGauge(name: string, help: string, measureMs: () => Promise<number | undefined>): void {
    const gauge: Gauge = new Gauge({
      name,
      help,
      registers: [this.registry],
      collect: async () => {
        gauge.remove();
        const ms = await measureMs().catch(() => undefined);
        if (ms !== undefined) gauge.set(ms / 1_000);
      },
    });
  }
}

function isRefused(check: () => void): boolean {
  try {
    check();
    return false;
  } catch {
    return true;
  }
}

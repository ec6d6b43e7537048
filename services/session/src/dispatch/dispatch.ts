import type { LeaseRepository, Logger, NatsBus } from '@margay/platform';
import { commitKey } from '@margay/log';
import type { SessionLog } from '../commits/session-log';
import type { SessionConfig } from '../config';
import type { EffectsService } from '../effects/effects.service';
import type { SessionMetrics } from '../metrics';
import type { Rows } from '../store/collections';
import { Dispatcher } from './dispatcher';
import { QueuePositions } from './queue-positions';
import { QueueReminders } from './queue-reminders';
import type { RunGrants } from './run-grants';
import type { RunnerPools } from './runner-pools';
import { RunQueue } from './run-queue';
import { RunnerWatch } from './runner-watch';
import { TenantLimits } from './tenant-limits';

export interface DispatchPorts {
  config: SessionConfig;
  log: SessionLog;
  effects: EffectsService;
  grants: RunGrants;
  bus: NatsBus;
  leases: LeaseRepository;
  rows: Rows;
  metrics: SessionMetrics;
  pools: RunnerPools;
  logger: Logger;
}

/** Runs and their runners: who gets which, who has lost which, and who waits where. */
export class Dispatch {
  readonly dispatcher: Dispatcher;
  readonly positions: QueuePositions;
  readonly reminders: QueueReminders;
  private readonly watch: RunnerWatch;

  constructor(ports: DispatchPorts) {
    const { config, log, effects, grants, bus, leases, rows, metrics, logger } = ports;
    const { runs, sessions } = rows;
    const { pools } = ports;
    this.watch = new RunnerWatch({
      log,
      ...rows,
      logger,
      lostAfterMs: config.MARGAY_RUNNER_LOST_SECONDS * 1_000,
      unlistedAfterMs: config.MARGAY_RUN_UNLISTED_SECONDS * 1_000,
      onTakeover: (cause) => metrics.takeovers.inc({ cause }),
    });
    const limits = new TenantLimits((tenantIds) => rows.access.shares(tenantIds), {
      weight: config.MARGAY_TENANT_WEIGHT,
      maxRunning: config.MARGAY_TENANT_CONCURRENT_RUNS || Infinity,
    });
    const queue = new RunQueue({ runs, limits, leases, logger });
    this.positions = new QueuePositions({ queue, runs, pools: pools.names, logger });
    this.reminders = new QueueReminders({ runs, sessions, positions: this.positions, bus, pools: pools.names });
    this.dispatcher = new Dispatcher(
      {
        ...{ log, runs, queue, limits, grants, bus, logger },
        giveBack: (row) => this.watch.takeOver(row, 'drain'),
        applied: (sessionId, c) => effects.settled(commitKey(sessionId, c)),
        onAssigned: (row, queuedMs) => {
          const lostMs = this.watch.takenOverSince(row._id);
          if (lostMs !== undefined) metrics.takeoverDuration.observe((performance.now() - lostMs) / 1_000);
          else if (queuedMs !== undefined) metrics.dispatched(row, queuedMs);
        },
      },
      pools.names,
    );
  }

  /** What the conversation with runners needs. */
  get parts(): { dispatcher: Dispatcher; watch: RunnerWatch } {
    return { dispatcher: this.dispatcher, watch: this.watch };
  }

  start(): void {
    this.dispatcher.start();
    this.watch.start();
  }

  stop(): void {
    this.watch.stop();
    this.dispatcher.stop();
  }

  /** Others need not wait for this replica's beat to run out. */
  leave(): Promise<void> {
    return this.watch.leave();
  }
}

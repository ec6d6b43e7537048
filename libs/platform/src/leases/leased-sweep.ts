import type { Logger } from '../logging/logger';
import type { LeaseRepository } from './lease.repository';

/** A replica that dies with the lease of the effects keeps a run out of the queue for so long. */
const LEASE_MS = 3_000;
/** A lease outlives so many intervals, so that its holder keeps it while it sweeps on time. */
const LEASE_INTERVALS = 3;

/** A periodic repair that one replica does at a time. */
export interface Sweep {
  /** Kind of repair; also names its lease and its metric. */
  name: string;
  everyMs: number;
  /**
   * One bounded batch, safe to repeat and to run twice at once: the lease is a hint.
   * @returns how much was repaired
   */
  sweep: () => Promise<number>;
  /** It begins once the store has answered for so long without a failure; default 0. */
  settleMs?: number;
}

export interface LeasedSweepPorts {
  leases: Pick<LeaseRepository, 'hold' | 'release'>;
  logger: Logger;
  /** Called where something was repaired. */
  onRepaired?: (name: string, count: number) => void;
}

/** Runs a sweep again and again while this replica holds its lease. */
export class LeasedSweep {
  private timer?: NodeJS.Timeout;
  private running?: Promise<void>;
  private settledSinceMs = performance.now();

  constructor(
    private readonly work: Sweep,
    private readonly ports: LeasedSweepPorts,
  ) {}

  start(): void {
    this.settledSinceMs = performance.now();
    this.timer = setInterval(() => {
      this.running ??= this.tick().finally(() => delete this.running);
    }, this.work.everyMs);
    this.timer.unref();
  }

  /** Resolves once the batch under way is over; another replica may take the work at once. */
  async stop(): Promise<void> {
    clearInterval(this.timer);
    await this.running;
    await this.ports.leases
      .release(this.lease)
      .catch((error: unknown) => this.ports.logger.debug({ err: error }, 'the lease of a sweep runs out by itself'));
  }

  /** One turn: a batch, if this replica has the lease. Never rejects. */
  async tick(): Promise<void> {
    const { name, everyMs, settleMs = 0, sweep } = this.work;
    const { leases, logger, onRepaired } = this.ports;
    try {
      const isHolder = await leases.hold(this.lease, Math.max(LEASE_MS, everyMs * LEASE_INTERVALS));
      if (!isHolder || performance.now() - this.settledSinceMs < settleMs) return;
      const repaired = await sweep();
      if (repaired > 0) onRepaired?.(name, repaired);
    } catch (error) {
      this.settledSinceMs = performance.now();
      logger.warn({ err: error, sweep: name }, 'a sweep failed and is repeated');
    }
  }

  private get lease(): string {
    return `sweep.${this.work.name}`;
  }
}

/**
 * One after the other, also those behind one that fails.
 * @throws the first failure, at the end
 */
export async function eachOf<T>(items: readonly T[], repair: (item: T) => Promise<unknown>): Promise<void> {
  const failures: unknown[] = [];
  for (const item of items) await repair(item).catch((error: unknown) => failures.push(error));
  if (failures.length > 0) throw failures[0];
}

import type { Logger } from '@margay/platform';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import type { LeaseRepository } from '../leases/lease.repository';
import type { EffectsService } from './effects.service';

const EVERY_MS = 1_000;
const LEASE_MS = 10_000;
/** A mark is due 1.5 s after its commit was built; the janitor waits half a second longer. */
const SLACK_MS = 500;
const BATCH = 100;

export interface JanitorObserver {
  repaired(count: number): void;
  /** How long the oldest effect that was found has been due; 0 if none is overdue. */
  lagged(seconds: number): void;
}

/** Redoes effects that their writer did not finish. */
export class Janitor {
  private timer?: NodeJS.Timeout;
  private isRunning = false;

  constructor(
    private readonly store: MongoCommitStore,
    private readonly effects: EffectsService,
    private readonly leases: LeaseRepository,
    private readonly logger: Logger,
    private readonly observer: JanitorObserver,
  ) {}

  start(): void {
    this.timer = setInterval(() => void this.tick(), EVERY_MS);
    this.timer.unref();
  }

  stop(): void {
    clearInterval(this.timer);
  }

  private async tick(): Promise<void> {
    if (this.isRunning) return;
    this.isRunning = true;
    try {
      if (await this.leases.hold('janitor', LEASE_MS)) await this.sweep();
    } catch (error) {
      this.logger.warn({ err: error }, 'the janitor could not sweep');
    } finally {
      this.isRunning = false;
    }
  }

  private async sweep(): Promise<void> {
    const nowMs = Date.now();
    const overdue = await this.store.overdue(nowMs - SLACK_MS, BATCH);
    this.observer.lagged((nowMs - (overdue[0]?.effectsDueAt ?? nowMs)) / 1_000);
    for (const document of overdue) await this.effects.apply(document);
    if (overdue.length > 0) this.observer.repaired(overdue.length);
  }
}

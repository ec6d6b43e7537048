import type { CommitDocument } from '@margay/log';
import type { Logger } from '@margay/platform';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import type { LeaseRepository } from '../leases/lease.repository';
import type { EffectsService } from './effects.service';

const EVERY_MS = 1_000;
const LEASE_MS = 10_000;
/** A mark is due 1.5 s after its commit was built; the janitor waits half a second longer. */
const SLACK_MS = 500;
const BATCH = 100;
/** What can't be applied now, e.g. while a service is down, makes way for others so long. */
const POSTPONED_MS = 10_000;
const LEASE = 'janitor';

export interface JanitorObserver {
  repaired(count: number): void;
  /** How long the oldest effect that was found has been due; 0 if none is overdue. */
  lagged(seconds: number): void;
}

/** Redoes effects that their writer did not finish. */
export class Janitor {
  private timer?: NodeJS.Timeout;
  private isRunning = false;
  private running: Promise<void> = Promise.resolve();

  constructor(
    private readonly store: MongoCommitStore,
    private readonly effects: EffectsService,
    private readonly leases: LeaseRepository,
    private readonly logger: Logger,
    private readonly observer: JanitorObserver,
  ) {}

  start(): void {
    this.timer = setInterval(() => {
      if (!this.isRunning) this.running = this.tick();
    }, EVERY_MS);
    this.timer.unref();
  }

  /** Resolves once the sweep under way is over; another replica may take the work at once. */
  async stop(): Promise<void> {
    clearInterval(this.timer);
    await this.running;
    await this.leases
      .release(LEASE)
      .catch((error: unknown) => this.logger.debug({ err: error }, 'the lease of the janitor runs out by itself'));
  }

  private async tick(): Promise<void> {
    this.isRunning = true;
    try {
      if (await this.leases.hold(LEASE, LEASE_MS)) await this.sweep();
    } catch (error) {
      this.logger.warn({ err: error }, 'the janitor could not sweep');
    } finally {
      this.isRunning = false;
    }
  }

  private async sweep(): Promise<void> {
    const nowMs = Date.now();
    const overdue = await this.store.overdue(nowMs - SLACK_MS, BATCH);
    const oldestTs = Math.min(nowMs * 1_000, ...overdue.map(({ ts0 }) => ts0));
    this.observer.lagged(nowMs / 1_000 - oldestTs / 1_000_000);
    const applied = await Promise.all(overdue.map((document) => this.redo(document)));
    const count = applied.filter(Boolean).length;
    if (count > 0) this.observer.repaired(count);
  }

  private async redo(document: CommitDocument): Promise<boolean> {
    if (await this.effects.apply(document)) return true;
    await this.store.postponeEffects(document._id, Date.now() + POSTPONED_MS);
    return false;
  }
}

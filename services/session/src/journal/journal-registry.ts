import type { Logger } from '@margay/platform';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import type { RunJournal } from './run-journal';

const PROBE_MS = 2_000;
const PROBE_MAX = 1_000;

/** Journals open at this replica; each session is probed every two seconds for commits that no message announced. */
export class JournalRegistry {
  private readonly journals = new Set<RunJournal>();
  private timer?: NodeJS.Timeout;
  private isProbing = false;

  constructor(
    private readonly store: MongoCommitStore,
    private readonly logger: Logger,
  ) {}

  start(): void {
    this.timer = setInterval(() => void this.tick(), PROBE_MS);
    this.timer.unref();
  }

  stop(): void {
    clearInterval(this.timer);
  }

  /** Sends all runs to other replicas, each once its commands are answered. */
  async handOver(): Promise<void> {
    await Promise.all([...this.journals].map((journal) => journal.handOver()));
  }

  add(journal: RunJournal): void {
    this.journals.add(journal);
  }

  remove(journal: RunJournal): void {
    this.journals.delete(journal);
  }

  private async tick(): Promise<void> {
    if (this.isProbing) return;
    this.isProbing = true;
    try {
      await this.probe();
    } catch (error) {
      this.logger.warn({ err: error }, 'open journals could not be probed');
    } finally {
      this.isProbing = false;
    }
  }

  private async probe(): Promise<void> {
    const all = [...this.journals].filter(({ isOver }) => !isOver);
    for (let from = 0; from < all.length; from += PROBE_MAX) {
      const page = all.slice(from, from + PROBE_MAX);
      const keys = page.map((journal) => ({ sessionId: journal.run.sessionId, c: journal.nextC }));
      const ahead = new Set(await this.store.existing(keys));
      for (const journal of page) if (ahead.has(journal.run.sessionId)) journal.follow(journal.nextC);
    }
  }
}

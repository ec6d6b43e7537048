import { Clock } from '../ports';

interface Sleeper {
  untilMs: number;
  wake: () => void;
}

/** Time that moves only when it is told to, for tests. */
export class ManualClock extends Clock {
  private elapsedMs = 0;
  private readonly sleepers = new Set<Sleeper>();

  constructor(private readonly startMs = Date.UTC(2026, 0, 1)) {
    super();
  }

  nowMs(): number {
    return this.startMs + this.elapsedMs;
  }

  monotonicMs(): number {
    return this.elapsedMs;
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const wake = (): void => {
        this.sleepers.delete(sleeper);
        signal?.removeEventListener('abort', wake);
        resolve();
      };
      const sleeper = { untilMs: this.elapsedMs + ms, wake };
      this.sleepers.add(sleeper);
      signal?.addEventListener('abort', wake, { once: true });
    });
  }

  /** Moves on and wakes whoever's time has come, in order of their times. */
  async advance(ms: number): Promise<void> {
    const targetMs = this.elapsedMs + ms;
    for (;;) {
      const next = [...this.sleepers].sort((a, b) => a.untilMs - b.untilMs)[0];
      if (!next || next.untilMs > targetMs) break;
      this.elapsedMs = Math.max(this.elapsedMs, next.untilMs);
      next.wake();
      await settled();
    }
    this.elapsedMs = targetMs;
    await settled();
  }

  /** Sleeps under way; a test waits for one before it moves the clock. */
  get sleeping(): number {
    return this.sleepers.size;
  }
}

const SETTLE_TURNS = 200;

/** Lets what is ready run, and what that makes ready. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < SETTLE_TURNS; turn += 1) await Promise.resolve();
}

interface Timer {
  callback: () => void;
  at: number;
  delayMs: number;
}

/**
 * A clock for clients under test. Short waits pass at once and are written down; long ones (time-outs, silence) fire only
 * when a test moves the time.
 */
export class QuickClock {
  /** Delays of the short waits, in order. */
  readonly waits: number[] = [];
  /** What `random()` answers. */
  share = 0.5;
  #now = Date.UTC(2026, 7, 3);
  readonly #timers = new Set<Timer>();

  /** Waits shorter than this pass at once. */
  constructor(private readonly longMs = 20_000) {}

  now(): number {
    return this.#now;
  }

  random(): number {
    return this.share;
  }

  setTimeout(callback: () => void, delayMs: number): unknown {
    const timer = { callback, delayMs, at: this.#now + delayMs };
    this.#timers.add(timer);
    if (delayMs < this.longMs) setImmediate(() => this.#pass(timer));
    return timer;
  }

  clearTimeout(timer: unknown): void {
    this.#timers.delete(timer as Timer);
  }

  /** Fires every timer that is due within the next `ms`. */
  advance(ms: number): void {
    this.#now += ms;
    for (const timer of [...this.#timers]) if (timer.at <= this.#now) this.#fire(timer);
  }

  /** Timers that are still set. */
  get pending(): number {
    return this.#timers.size;
  }

  #pass(timer: Timer): void {
    if (!this.#timers.has(timer)) return;
    this.waits.push(timer.delayMs);
    this.#now = Math.max(this.#now, timer.at);
    this.#fire(timer);
  }

  #fire(timer: Timer): void {
    if (this.#timers.delete(timer)) timer.callback();
  }
}

import { LogClock } from '@margay/log';
import type { Timer } from './virtual-time';
import type { World } from './world';

/** Wall clocks start here; microseconds. */
const EPOCH_MICROS = 1_700_000_000_000_000;

/**
 * An operating-system process: it can be stopped (and continued) or killed (and started again) at any event. Whatever
 * reaches it from outside waits while it is stopped, and never arrives once that life is over: neither timers nor
 * answers of the store. So code of a killed process never goes on.
 */
export abstract class SimProcess {
  isAlive = true;
  isPaused = false;
  /** It reaches nobody, and nobody reaches it. */
  isCutOff = false;
  /** Counts lives; what was addressed to an earlier one is lost. */
  life = 1;
  /** How far the wall clock is ahead of true time; it may change at any time, the monotonic clock never does. */
  skewMs: number;
  private waiting: (() => void)[] = [];
  private readonly closers = new Set<() => void>();

  constructor(
    readonly world: World,
    readonly name: string,
  ) {
    this.skewMs = world.drawSkewMs();
  }

  protected abstract boot(): void;

  /** Runs something that comes from outside: now, when the process is continued, or never. */
  enter(life: number, run: () => void): void {
    if (!this.isAlive || this.life !== life) return;
    if (this.isPaused) this.waiting.push(() => this.enter(life, run));
    else run();
  }

  /** Starts a piece of the process's own code. An exception in it is a finding. */
  spawn(body: () => Promise<void>): void {
    const { life } = this;
    void body().catch((error: unknown) => {
      if (this.life === life) this.world.fail('exception', `${this.name}: ${(error as Error).stack}`);
    });
  }

  after(delayMs: number, run: () => void): Timer {
    const { life } = this;
    return this.world.time.at(delayMs, () => this.enter(life, run));
  }

  sleep(delayMs: number): Promise<void> {
    return new Promise((resolve) => void this.after(delayMs, resolve));
  }

  /** What something outside promises: known when the process is continued, or never. */
  reach<T>(promise: Promise<T>): Promise<T> {
    const { life } = this;
    return new Promise((resolve, reject) => {
      promise.then(
        (value) => this.enter(life, () => resolve(value)),
        (error: unknown) => this.enter(life, () => reject(error as Error)),
      );
    });
  }

  /** Called when this life ends. @returns takes the closer back */
  onDeath(close: () => void): () => void {
    this.closers.add(close);
    return () => this.closers.delete(close);
  }

  kill(): void {
    if (!this.isAlive) return;
    this.world.trace(this.name, 'killed');
    this.isAlive = false;
    this.isPaused = false;
    this.life++;
    this.waiting = [];
    const closers = [...this.closers];
    this.closers.clear();
    for (const close of closers) close();
  }

  start(): void {
    if (this.isAlive) return;
    this.world.trace(this.name, 'started');
    this.isAlive = true;
    this.boot();
  }

  pause(): void {
    if (!this.isAlive || this.isPaused) return;
    this.world.trace(this.name, 'stopped');
    this.isPaused = true;
  }

  continue(): void {
    if (!this.isPaused) return;
    this.world.trace(this.name, 'continued');
    this.isPaused = false;
    const { waiting } = this;
    this.waiting = [];
    for (const run of waiting) this.world.time.at(0, run);
  }

  /**
   * A point at which the process may be stopped or killed, e.g. between deciding and sending. `then` runs at once,
   * after the stop, or never.
   */
  stumble(probability: number, then: () => void): void {
    const { world, life } = this;
    if (world.areFaultsOn && world.random.chance(probability)) {
      if (world.random.chance(0.3)) {
        world.count('kill at a stumble');
        this.kill();
        world.time.at(world.random.between(50, 3_000), () => this.start());
        return;
      }
      world.count('stop at a stumble');
      this.pause();
      world.time.at(world.random.between(1, 6_000), () => this.continue());
    }
    this.enter(life, then);
  }
}

/** Clocks of a process, as the log's code sees them. */
export class ProcessClock extends LogClock {
  constructor(private readonly process: SimProcess) {
    super();
  }

  nowMicros(): number {
    const { process } = this;
    return EPOCH_MICROS + Math.floor((process.world.time.nowMs + process.skewMs) * 1_000);
  }

  monotonicMs(): number {
    return this.process.world.time.nowMs;
  }

  sleep(ms: number): Promise<void> {
    return this.process.sleep(ms);
  }

  random(): number {
    return this.process.world.random.next();
  }
}

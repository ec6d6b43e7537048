import { Clock, Ids, Inbox, RunStopped, type InboxItem, type StopCause } from '@margay/engine';
import { ProcessClock, type SimProcess } from '../world/sim-process';

/** Clocks of a process, as the engine sees them. */
export class LifeClock extends Clock {
  private readonly wall: ProcessClock;

  constructor(private readonly process: SimProcess) {
    super();
    this.wall = new ProcessClock(process);
  }

  nowMs(): number {
    return Math.floor(this.wall.nowMicros() / 1_000);
  }

  monotonicMs(): number {
    return this.wall.monotonicMs();
  }

  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const timer = this.process.after(ms, () => {
        signal?.removeEventListener('abort', wake);
        resolve();
      });
      const wake = (): void => {
        timer.cancel();
        resolve();
      };
      signal?.addEventListener('abort', wake, { once: true });
    });
  }
}

export class LifeIds extends Ids {
  constructor(private readonly process: SimProcess) {
    super();
  }

  hex(characters: number): string {
    const { random } = this.process.world;
    return Array.from({ length: characters }, () => random.integer(0, 15).toString(16)).join('');
  }

  random(): number {
    return this.process.world.random.next();
  }
}

/** Messages to one run as its journal brings them. */
export class LifeInbox extends Inbox {
  private items: InboxItem[] = [];
  private readonly listeners = new Set<(item: InboxItem) => void>();
  private readonly stopping = new AbortController();
  readonly stop: AbortSignal = this.stopping.signal;

  since(afterN: number): InboxItem[] {
    return this.items.filter(({ n }) => n > afterN);
  }

  onItem(listener: (item: InboxItem) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  get end(): number {
    return this.items.at(-1)?.n ?? 0;
  }

  /** In any order, some perhaps known already. */
  add(items: readonly InboxItem[]): void {
    for (const item of items) {
      if (this.items.some(({ n }) => n === item.n)) continue;
      this.items = [...this.items, item].sort((a, b) => a.n - b.n);
      for (const listener of [...this.listeners]) listener(item);
    }
  }

  stopFor(cause: StopCause): void {
    if (!this.stop.aborted) this.stopping.abort(new RunStopped(cause));
  }
}

import { OVER } from '../abort';
import type { Clock } from '../ports';

/** A deadline that may be stopped and started anew. */
export class TimeLimit<T> {
  readonly expired: Promise<T>;
  private expire: (value: T) => void = () => undefined;
  private sleeping = new AbortController();

  constructor(private readonly clock: Clock) {
    this.expired = new Promise((resolve) => (this.expire = resolve));
  }

  /** Forgets the present deadline and sets another; `onExpired` says what `expired` then resolves with. */
  start(ms: number, onExpired: () => T): void {
    this.stop();
    const { signal } = (this.sleeping = new AbortController());
    void this.clock.sleep(ms, signal).then(() => {
      if (!signal.aborted) this.expire(onExpired());
    });
  }

  stop(): void {
    this.sleeping.abort(OVER);
  }
}

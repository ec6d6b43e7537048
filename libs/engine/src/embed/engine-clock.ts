import { LogClock } from '@margay/log';
import type { Clock, Ids } from '../ports';

/** The log's view of the engine's clock. */
export class EngineClock extends LogClock {
  constructor(
    private readonly clock: Clock,
    private readonly ids: Ids,
  ) {
    super();
  }

  nowMicros(): number {
    return Math.floor(this.clock.nowMs() * 1000);
  }

  monotonicMs(): number {
    return this.clock.monotonicMs();
  }

  sleep(ms: number): Promise<void> {
    return this.clock.sleep(ms);
  }

  random(): number {
    return this.ids.random();
  }
}

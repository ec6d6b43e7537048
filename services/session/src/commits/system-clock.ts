import { setTimeout as sleep } from 'node:timers/promises';
import { LogClock } from '@margay/log';

export class SystemClock extends LogClock {
  nowMicros(): number {
    return Math.floor((performance.timeOrigin + performance.now()) * 1_000);
  }

  monotonicMs(): number {
    return performance.now();
  }

  async sleep(ms: number): Promise<void> {
    await sleep(ms);
  }

  random(): number {
    return Math.random();
  }
}

import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Clock, Ids } from '@margay/engine';

export class SystemClock extends Clock {
  nowMs(): number {
    return Date.now();
  }

  monotonicMs(): number {
    return performance.now();
  }

  async sleep(ms: number, signal?: AbortSignal): Promise<void> {
    await sleep(ms, undefined, signal ? { signal } : {}).catch(() => undefined);
  }
}

export class SystemIds extends Ids {
  hex(characters: number): string {
    return randomBytes(Math.ceil(characters / 2))
      .toString('hex')
      .slice(0, characters);
  }

  random(): number {
    return Math.random();
  }
}

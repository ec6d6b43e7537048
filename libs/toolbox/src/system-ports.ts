import { randomBytes } from 'node:crypto';
import { Clock, Ids } from '@margay/engine';

/** The clocks of this machine. */
export class SystemClock extends Clock {
  nowMs(): number {
    return Date.now();
  }

  monotonicMs(): number {
    return performance.now();
  }

  /** Without `timers/promises`: an aborted sleep would make an error with a stack, and each step aborts several. */
  sleep(ms: number, signal?: AbortSignal): Promise<void> {
    return new Promise((resolve) => {
      if (signal?.aborted) return resolve();
      const wake = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', wake);
        resolve();
      };
      const timer = setTimeout(wake, ms);
      signal?.addEventListener('abort', wake, { once: true });
    });
  }
}

/** Randomness of this machine. */
export class RandomIds extends Ids {
  hex(characters: number): string {
    return randomBytes(Math.ceil(characters / 2))
      .toString('hex')
      .slice(0, characters);
  }

  random(): number {
    return Math.random();
  }
}

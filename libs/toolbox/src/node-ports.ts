import { randomBytes } from 'node:crypto';
import { Clock, Ids, memoryPorts, type EngineOptions } from '@margay/engine';

class SystemClock extends Clock {
  nowMs(): number {
    return Date.now();
  }

  monotonicMs(): number {
    return performance.now();
  }

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

class RandomIds extends Ids {
  hex(characters: number): string {
    return randomBytes(Math.ceil(characters / 2))
      .toString('hex')
      .slice(0, characters);
  }

  random(): number {
    return Math.random();
  }
}

export type NodePorts = Pick<EngineOptions, 'clock' | 'ids' | 'store' | 'blobs'>;

/** What an engine in a Node process needs besides a model: the system's clock, random ids, sessions in memory. */
export function nodePorts(): NodePorts {
  const { store, blobs } = memoryPorts();
  return { clock: new SystemClock(), ids: new RandomIds(), store, blobs };
}

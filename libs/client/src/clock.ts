import { CancelledError, type MargayError } from '@margay/errors';

/** Time and chance, so that tests can move the one and fix the other. */
export interface Clock {
  /** Milliseconds since the epoch. */
  now(): number;
  setTimeout(callback: () => void, delayMs: number): unknown;
  clearTimeout(timer: unknown): void;
  /** At least 0, less than 1. */
  random(): number;
}

export const systemClock: Clock = {
  now: () => Date.now(),
  setTimeout: (callback, delayMs) => setTimeout(callback, delayMs),
  clearTimeout: (timer) => clearTimeout(timer as ReturnType<typeof setTimeout>),
  random: () => Math.random(),
};

/** The error of everything that a caller's own signal ended. */
export const aborted = (what: string, signal: AbortSignal): MargayError =>
  new CancelledError('aborted', `${what} was aborted by the caller`, { cause: signal.reason });

/** Waits; an abort ends the wait at once with `CancelledError` (`aborted`) and leaves no timer. */
export function sleep(clock: Clock, delayMs: number, what: string, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = (): void => {
      clock.clearTimeout(timer);
      reject(aborted(what, signal as AbortSignal));
    };
    const timer = clock.setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, delayMs);
    if (signal?.aborted) stop();
    else signal?.addEventListener('abort', stop, { once: true });
  });
}

/** Full jitter: a random share of `baseMs·2^exponent`, which is capped at `capMs`. */
export const fullJitterMs = (clock: Clock, exponent: number, baseMs: number, capMs: number): number =>
  Math.floor(clock.random() * Math.min(capMs, baseMs * 2 ** Math.min(exponent, 30)));

import { setMaxListeners } from 'node:events';

/** Reason of aborts that nobody looks at; making one anew for each costs a stack trace. */
export const OVER = new Error('over');

/** Lets any number of calls listen to a signal: Node warns of a leak from eleven on. */
export function shared(signal: AbortSignal): AbortSignal {
  setMaxListeners(0, signal);
  return signal;
}

/** The promise's outcome, or a rejection with the signal's reason as soon as that aborts. */
export function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason as Error);
    if (signal.aborted) {
      promise.catch(() => undefined); // nobody waits for it any more
      return onAbort();
    }
    signal.addEventListener('abort', onAbort, { once: true });
    const settle = <V>(done: (value: V) => void) => {
      return (value: V): void => {
        signal.removeEventListener('abort', onAbort);
        done(value);
      };
    };
    promise.then(settle(resolve), settle(reject));
  });
}

/** A controller that aborts with its parent; `release` it, or it stays attached as long as the parent lives. */
export function childOf(parent: AbortSignal): AbortController & { release: () => void } {
  const controller = new AbortController();
  const onAbort = (): void => controller.abort(parent.reason);
  if (parent.aborted) onAbort();
  else parent.addEventListener('abort', onAbort, { once: true });
  return Object.assign(controller, { release: () => parent.removeEventListener('abort', onAbort) });
}

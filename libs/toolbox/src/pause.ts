/** Waits so long, less if the signal ends it; never throws, and keeps no process alive. */
export function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const go = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', go);
      resolve();
    };
    const timer = setTimeout(go, ms);
    timer.unref();
    signal.addEventListener('abort', go);
    if (signal.aborted) go();
  });
}

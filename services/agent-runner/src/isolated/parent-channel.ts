import { Worker } from 'node:worker_threads';
import type { Logger } from '@margay/platform';
import { EXIT, ToChild, type FromChild } from './messages';

/** What the process of a single run and its parent say to each other. */
export interface ParentChannel {
  onMessage(listener: (message: ToChild) => void): void;
  /** Resolves once it is on its way. */
  send(message: FromChild): Promise<void>;
}

/** The channel that `child_process.fork` opened. */
export function forkedChannel(logger: Logger): ParentChannel {
  return {
    onMessage: (listener) =>
      void process.on('message', (message) => {
        const parsed = ToChild.safeParse(message);
        if (parsed.success) listener(parsed.data);
        else logger.warn('the runner said something that is not understood');
      }),
    send: (message) =>
      new Promise((resolve) => {
        // Where the parent is gone, this process ends too.
        if (process.send) process.send(message, undefined, undefined, () => resolve());
        else resolve();
      }),
  };
}

/** Looks at the parent from a thread of its own, however stuck this process is. */
const WATCH = `
const { workerData } = require('node:worker_threads');
setInterval(() => {
  if (process.ppid !== workerData) process.kill(process.pid, 'SIGKILL');
}, 1000);`;
const WATCH_HEAP_MB = 16;

/** Nobody may drive a run whose runner is gone: it is driven elsewhere by then. */
export function endWithParent(): void {
  process.once('disconnect', () => process.exit(EXIT.orphaned));
  // A signal to the whole process group reaches the runner as well, which says when to stop.
  for (const signal of ['SIGTERM', 'SIGINT'] as const) process.on(signal, () => undefined);
  const resourceLimits = { maxOldGenerationSizeMb: WATCH_HEAP_MB };
  new Worker(WATCH, { eval: true, workerData: process.ppid, resourceLimits, execArgv: [] }).unref();
}

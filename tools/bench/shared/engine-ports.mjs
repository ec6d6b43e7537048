// What the engine needs of its surroundings, at the least cost.
import { performance } from 'node:perf_hooks';
import { Clock, defineTool, Ids } from '../../../libs/engine/dist/index.js';

export class RealClock extends Clock {
  nowMs = () => Date.now();
  monotonicMs = () => performance.now();
  // Not the one of node:timers/promises: it makes an error with a stack trace for every sleeper that is woken early.
  sleep = (ms, signal) =>
    new Promise((resolve) => {
      const wake = () => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', wake);
        resolve();
      };
      const timer = setTimeout(wake, ms);
      signal?.addEventListener('abort', wake, { once: true });
    });
}

export class RandomIds extends Ids {
  hex = (characters) => Array.from({ length: characters }, () => Math.floor(Math.random() * 16).toString(16)).join('');
  random = () => Math.random();
}

/** A tool in this process, under the name that the bench model calls. */
export const readFile = defineTool({
  id: 'read_file',
  description: 'Read a file',
  operation: 'get',
  effect: 'pure',
  input: { type: 'object', properties: { path: { type: 'string' }, limit: { type: 'integer' } }, required: ['path'] },
  execute: () => 'x'.repeat(32),
});

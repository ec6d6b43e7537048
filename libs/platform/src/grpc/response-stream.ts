import { once } from 'node:events';
import type { Writable } from 'node:stream';

/**
 * Writes all messages, pausing while the receiver is slow. When the call is cancelled it stops at once: the iterator is
 * told to return, but not waited for, since it may itself be waiting for an event that never comes.
 */
export async function writeAll(messages: AsyncIterable<unknown>, stream: Writable, signal: AbortSignal): Promise<void> {
  const iterator = messages[Symbol.asyncIterator]();
  const aborted = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
  try {
    while (!signal.aborted) {
      const next = await Promise.race([iterator.next(), aborted]);
      if (!next || next.done) break;
      if (!stream.write(next.value)) await Promise.race([once(stream, 'drain', { signal }), aborted]);
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  } finally {
    if (signal.aborted) void iterator.return?.()?.catch(() => undefined); // the call is over: nobody is left to be told
  }
}

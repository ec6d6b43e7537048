import { setTimeout as delay } from 'node:timers/promises';
import type { StoredResult } from './guard-store';
import type { Attempt, AttemptEnd, OutsideTool } from './outside-tool';

/** Why a call is ended before it ended by itself. */
export class CallStopped extends Error {
  constructor(readonly why: 'cancelled' | 'killed' | 'shutdown' | 'taken') {
    super(`the call was stopped: ${why}`);
  }
}

/** Nothing was sent, or it may be sent again: somebody else goes on with it. */
export type Unfinished = 'unsent' | 'repeatable';

const ATTEMPTS_MAX = 4;
const BACKOFF_FIRST_MS = 250;

/**
 * Makes a call to its end: an unkeyed one by one attempt, others repeated with their key where no answer came.
 * @param stop its reason is a CallStopped
 * @returns its result, or for a process that shuts down how another one may go on
 */
export async function perform(
  tool: OutsideTool,
  call: Omit<Attempt, 'signal'>,
  stop: AbortSignal,
  pause = pauseFor,
): Promise<StoredResult | Unfinished> {
  const startedAt = performance.now();
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), tool.timeoutMs);
  const signal = AbortSignal.any([stop, late.signal]);
  const { effect } = tool.descriptor;
  let mayBeSent = false;
  let isInDoubt = false;
  const ended = (status: StoredResult['status'], result: unknown): StoredResult => ({
    status,
    resultJson: JSON.stringify(result ?? null),
    durationMs: Math.round(performance.now() - startedAt),
  });
  const doubtful = (status: StoredResult['status'], text: string): StoredResult =>
    ended(mayBeSent && effect !== 'pure' ? 'unknown' : status, text);
  try {
    for (let tries = 1; ; tries += 1) {
      const end = await tool.attempt({ ...call, signal }).catch(broken);
      const isLast = effect === 'unkeyed' || tries >= ATTEMPTS_MAX;
      if (end.kind !== 'not_sent') mayBeSent = true;
      if (end.kind === 'lost' || (end.kind === 'answered' && end.isInDoubt)) isInDoubt = true;
      // That a server is busy now says nothing of an earlier attempt whose answer was lost.
      const isFinal = end.kind === 'answered' && (!end.isPassing || (isLast && !isInDoubt));
      if (isFinal) return ended(end.status, end.result);
      if (!signal.aborted && !isLast) await pause(BACKOFF_FIRST_MS * 2 ** (tries - 1), signal);
      if (stop.aborted) return stopped(stop.reason as CallStopped);
      if (late.signal.aborted) return doubtful('timed_out', `no answer came within ${tool.timeoutMs / 1_000} s`);
      if (isLast) return doubtful('error', errorOf(end));
    }
  } finally {
    clearTimeout(timer);
  }

  function stopped({ why }: CallStopped): StoredResult | Unfinished {
    if (why === 'cancelled' || why === 'killed') return doubtful(why, `it was ${why} before an answer came`);
    if (!mayBeSent) return 'unsent';
    return effect === 'unkeyed' ? ended('unknown', 'the process that made the call was stopped') : 'repeatable';
  }
}

async function pauseFor(ms: number, signal: AbortSignal): Promise<void> {
  await delay(ms, undefined, { signal }).catch(() => undefined); // the signal is looked at by the caller
}

/** A mistake of ours; it may have come after the sending. */
function broken(): AttemptEnd {
  return { kind: 'lost', error: 'the call failed inside Margay' };
}

function errorOf(end: AttemptEnd): string {
  return end.kind === 'answered' ? String(end.result) : end.error;
}

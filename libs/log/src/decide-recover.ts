import { isoMicros } from '@margay/contracts';
import type { RecoverCommand } from './command';
import { startRun } from './decide-start';
import { isRejected, reject, type DecideRules, type Decision } from './decision';
import { CUTS_MAX, type Head } from './head';

/**
 * A new run in place of the last one, or after it. A retry cuts the turn it repeats and all behind it: readers skip what
 * was cut, nothing is deleted.
 */
export function recover(head: Head, command: RecoverCommand, ts: number, rules: DecideRules): Decision {
  if (head.run) return reject('session_running', 'Session is already running.');
  if (head.runNo === 0) return reject('nothing_to_recover', 'The session has no turn to recover.');
  const { action, from, run } = command;
  if (action === 'continue' || !from) {
    const started = startRun(head, run, ts + 1, rules);
    if (isRejected(started)) return started;
    const event = { type: 'recovery' as const, payload: { action } };
    return { ...started, events: [{ event, runId: null }, ...started.events] };
  }
  if (from.seq > head.seq || head.cuts.some(([start, end]) => start <= from.seq && from.seq <= end))
    return reject('nothing_to_recover', 'The turn to run again was cut meanwhile.');
  if (from.isLast && head.lastRun?.id !== from.runId)
    return reject('changed', 'Another turn came meanwhile: look at it, then retry.');
  const cuts = withCut(head.cuts, [from.seq, head.seq]);
  if (cuts.length > CUTS_MAX)
    return reject('cuts_exhausted', `The session has ${CUTS_MAX} retried ranges; fork it to go on retrying.`);
  const started = startRun({ ...head, cuts, ...forgotten(head, from) }, run, ts + 1, rules);
  if (isRejected(started)) return started;
  const cut = { from_ts: isoMicros(from.ts), to_ts: isoMicros(head.ts) };
  const event = { type: 'recovery' as const, payload: { action, cut } };
  return {
    ...started,
    events: [{ event, runId: null }, ...started.events],
    records: [{ kind: 'cut', runId: from.runId }, ...started.records],
  };
}

/** What came of the turns that are cut: nobody waits for answers to their questions, and a title from there goes. */
function forgotten(head: Head, { ts, runId }: { ts: number; runId: string }): Partial<Head> {
  const isTitle = head.titleRunNo !== undefined && runId === `${head.sessionId}:r${head.titleRunNo}`;
  return {
    ...(head.unanswered ? { unanswered: head.unanswered.filter((question) => question.ts < ts) } : {}),
    ...(isTitle ? { title: null } : {}),
  };
}

/** Ascending and disjoint; neighbours become one. @param cut ends at the end of the log */
function withCut(cuts: Head['cuts'], cut: [from: number, to: number]): Head['cuts'] {
  const before = cuts.filter(([, to]) => to < cut[0] - 1);
  const touched = cuts.filter(([, to]) => to >= cut[0] - 1);
  return [...before, [Math.min(cut[0], ...touched.map(([from]) => from)), cut[1]]];
}

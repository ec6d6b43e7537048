import type { StoredEvent } from './stored-event';
import { violation, type Violation } from './violation';

/** One query of a user. */
export interface RunRecord {
  name: string;
  /** Milliseconds since the epoch. */
  acceptedAt: number;
  /** When its stream ended; absent where it never did. */
  endedAt?: number;
  /** Frames that had come by then. */
  framesAtEnd?: number;
}

/** When a model could not be reached, in milliseconds since the epoch. */
export interface Outage {
  from: number;
  to: number;
}

/** A call that failed is tried again for so long before its run ends. */
const TRIED_MS = 10_000;

/** Each query is one run, each run ends once, each call has its result. */
export function checkRuns(
  runs: readonly RunRecord[],
  events: readonly StoredEvent[],
  outages: readonly Outage[],
): Violation[] {
  const starts = events.flatMap(({ type }, index) => (type === 'user' ? [index] : []));
  const found: Violation[] = [];
  if (starts.length !== runs.length)
    found.push(violation('lost', `${runs.length} queries were accepted, ${starts.length} are stored`));
  for (const [index, start] of starts.entries()) {
    const name = runs[index]?.name ?? `run ${index + 1}`;
    found.push(...checkRun(name, events.slice(start, starts[index + 1]), outages));
  }
  for (const { name, endedAt } of runs)
    if (endedAt === undefined) found.push(violation('stuck', `the stream of ${name} did not end`));
  return found;
}

/** Whether it was given up, since it seemed to kill its runners. */
export function isParked({ type, payload }: StoredEvent): boolean {
  return type === 'completion' && JSON.stringify(payload).includes('poison');
}

/** Whether a run gave up since its model could not be reached, which was so. */
export function isUnreachable({ type, ts, payload }: StoredEvent, outages: readonly Outage[]): boolean {
  if (type !== 'completion' || payload.failure_reason !== 'connection') return false;
  const at = Date.parse(ts);
  return outages.some(({ from, to }) => from <= at && at <= to + TRIED_MS);
}

function checkRun(name: string, run: readonly StoredEvent[], outages: readonly Outage[]): Violation[] {
  const ends = run.flatMap(({ type }, index) => (type === 'completion' ? [index] : []));
  const [end] = ends;
  if (end === undefined) return [violation('stuck', `${name} has no end`), ...checkPairs(name, run, true)];
  const found: Violation[] = [];
  if (ends.length > 1) found.push(violation('terminal', `${name} has ${ends.length} completions`));
  const completion = run[end] as StoredEvent;
  const answers = run.filter(({ type }) => type === 'assistant').length;
  if (answers !== 1) found.push(violation('terminal', `${name} has ${answers} answers`));
  const behind = run.slice(end + 1).filter(({ run_id }) => run_id !== undefined && run_id === completion.run_id);
  if (behind.length > 0) found.push(violation('terminal', `${name} has events behind its end`));
  if (isParked(completion)) return found;
  if (completion.payload.done_reason !== 'completed' && !isUnreachable(completion, outages))
    found.push(violation('terminal', `${name} ended ${JSON.stringify(completion.payload).slice(0, 300)}`));
  return [...found, ...checkPairs(name, run, false)];
}

/** @param isOpen the run has no end yet: calls may still be without a result */
function checkPairs(name: string, run: readonly StoredEvent[], isOpen: boolean): Violation[] {
  const calls = idsOf(run, 'tool_call');
  const results = idsOf(run, 'tool_result');
  const wrong = [...new Set([...calls, ...results])].filter((id) => {
    const answered = countIn(results, id);
    return countIn(calls, id) !== 1 || answered > 1 || (answered === 0 && !isOpen);
  });
  return wrong.length === 0 ? [] : [violation('pairs', `${name}: calls and results do not pair: ${wrong.join(' ')}`)];
}

function idsOf(run: readonly StoredEvent[], type: string): string[] {
  return run.filter((event) => event.type === type).map(({ payload }) => payload.tool_call_id ?? '?');
}

const countIn = (ids: readonly string[], id: string): number => ids.filter((other) => other === id).length;

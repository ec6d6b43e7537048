import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { RunRecord } from './actor';
import { effectOf } from './script';

interface StoredEvent {
  type: string;
  seq: number;
  ts: string;
  payload: {
    tool_id?: string;
    tool_input?: unknown;
    tool_call_id?: string;
    success?: boolean;
    error?: string;
    outcome?: string;
    result?: unknown;
    done_reason?: string;
    run_id?: string;
    text?: string;
    error_code?: string;
  };
}

/** What an actor did and saw. */
export interface Played {
  sessionId: string;
  folder: string;
  runs: readonly RunRecord[];
  /** Texts of all frames received, in order. */
  recording: readonly string[];
}

export interface Findings {
  /** Promises that were broken; empty is good. */
  violations: string[];
  runs: number;
  /** Unkeyed calls of which nobody can say whether they took effect. */
  unknown: number;
  /** Runs parked because they were killed again and again without progress. */
  parked: number;
}

/** Reads the stored log, the recording and the workspace of one actor and compares them; it knows nothing of Margay's code. */
export async function check(actor: Played, stored: readonly string[]): Promise<Findings> {
  const events = stored.map((text) => JSON.parse(text) as StoredEvent);
  const violations = [...checkOrder(events), ...checkRecording(actor.recording, stored), ...checkRuns(actor, events)];
  const effects = await checkEffects(actor, events);
  const parked = events.filter((event) => event.type === 'completion' && isParked(event)).length;
  return {
    violations: [...violations, ...effects.violations].map((violation) => `${actor.sessionId}: ${violation}`),
    runs: actor.runs.length,
    unknown: effects.unknown,
    parked,
  };
}

function checkOrder(events: readonly StoredEvent[]): string[] {
  return events.flatMap(({ seq, ts }, index) => [
    ...(seq === index + 1 ? [] : [`event ${index + 1} has seq ${seq}`]),
    ...(index === 0 || ts > (events[index - 1]?.ts ?? '') ? [] : [`ts of seq ${seq} does not rise`]),
  ]);
}

function checkRecording(recording: readonly string[], stored: readonly string[]): string[] {
  const at = recording.findIndex((text, index) => text !== stored[index]);
  if (at !== -1) return [`the recording differs from the log at frame ${at + 1}: ${recording[at]?.slice(0, 200)}`];
  return recording.length === stored.length ? [] : [`${recording.length} of ${stored.length} frames were recorded`];
}

function checkRuns({ runs }: Played, events: readonly StoredEvent[]): string[] {
  const violations = runs.filter((run) => run.endedAt === undefined).map((run) => `${run.name} is stuck`);
  const starts = events.flatMap(({ type }, index) => (type === 'user' ? [index] : []));
  if (starts.length !== runs.length)
    violations.push(`${runs.length} queries were accepted, ${starts.length} are stored`);
  for (const [index, start] of starts.entries()) {
    const run = events.slice(start, starts[index + 1]);
    const name = runs[index]?.name ?? `run ${index}`;
    const count = (type: string): number => run.filter((event) => event.type === type).length;
    const completion = run.find((event) => event.type === 'completion');
    if (count('completion') !== 1) violations.push(`${name} has ${count('completion')} completions`);
    if (completion && isParked(completion)) continue;
    if (completion?.payload.done_reason !== 'completed')
      violations.push(`${name} ended ${JSON.stringify(completion?.payload).slice(0, 300)}`);
    if (count('assistant') !== 1) violations.push(`${name} has ${count('assistant')} answers`);
    violations.push(...checkPairs(name, run));
  }
  return violations;
}

function checkPairs(name: string, run: readonly StoredEvent[]): string[] {
  const calls = idsOf(run, 'tool_call');
  const results = idsOf(run, 'tool_result');
  const isPaired = calls.length === new Set(calls).size && calls.toSorted().join() === results.toSorted().join();
  return isPaired ? [] : [`${name}: calls ${calls.join(' ')} have results ${results.join(' ')}`];
}

function idsOf(run: readonly StoredEvent[], type: string): string[] {
  return run.filter((event) => event.type === type).map(({ payload }) => payload.tool_call_id ?? '?');
}

async function checkEffects(actor: Played, events: readonly StoredEvent[]) {
  const violations: string[] = [];
  let unknown = 0;
  const lines = {
    'count.txt': (await readFile(join(actor.folder, 'count.txt'), 'utf8')).split('\n'),
    'edits.txt': (await readFile(join(actor.folder, 'edits.txt'), 'utf8')).split('\n'),
  };
  for (const { payload } of events.filter(({ type }) => type === 'tool_result')) {
    const effect = effectOf(payload.tool_id ?? '', payload.tool_input);
    if (!effect) continue;
    const times = lines[effect.file].filter((line) => line === effect.token).length;
    const isUnknown = /unknown/.test(JSON.stringify(payload));
    if (isUnknown) unknown += 1;
    const said = `${effect.token} (${effect.effect}) took effect ${times} times: ${JSON.stringify(payload).slice(0, 400)}`;
    const isRight =
      effect.effect === 'keyed' ? times === 1 : times === (isUnknown ? Math.min(times, 1) : payload.success ? 1 : 0);
    if (!isRight || (effect.effect === 'keyed' && !payload.success)) violations.push(said);
  }
  return { violations, unknown };
}

function isParked({ payload }: StoredEvent): boolean {
  return JSON.stringify(payload).includes('poison');
}

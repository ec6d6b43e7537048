import { checkCommits } from './check-commits';
import { checkEffects } from './check-effects';
import { checkEarlyEnds, checkRecording, checkStreams, type Connection } from './check-recording';
import { checkRuns, isParked, isUnreachable, type Outage, type RunRecord } from './check-runs';
import type { StoredCommit } from './stored';
import type { StoredEvent } from './stored-event';
import { violation, type Violation } from './violation';

/** What a user did and saw. */
export interface Played {
  sessionId: string;
  /** The workspace, in which effects can be counted. */
  folder: string;
  runs: readonly RunRecord[];
  /** Texts of all frames received, in order. */
  recording: readonly string[];
  connections: readonly Connection[];
  /** When runners could not reach the model. */
  outages?: readonly Outage[];
}

export interface Findings {
  /** Promises that were broken; empty is good. */
  violations: Violation[];
  runs: number;
  commits: number;
  events: number;
  /** Completions: one per run. */
  terminalEvents: number;
  effects: number;
  /** Unkeyed calls of which nobody can say whether they took effect. */
  unknown: number;
  /** Runs given up because they seemed to kill their runners. */
  parked: number;
  /** Runs that ended since their model could not be reached. */
  unreachable: number;
}

/**
 * Reads the stored commits, the recording and the workspace of one user and compares them. It knows nothing of Margay's code.
 * @param replay what a new client gets of the whole session
 */
export async function check(
  played: Played,
  commits: readonly StoredCommit[],
  replay: readonly string[],
): Promise<Findings> {
  const { sessionId, folder, runs, recording, connections, outages = [] } = played;
  const stored = commits.flatMap(({ frames }) => frames);
  const events = stored.map((text) => JSON.parse(text) as StoredEvent);
  const effects = await checkEffects(folder, events);
  const violations = [
    ...checkCommits(commits),
    ...checkOrder(events),
    ...checkRecording(recording, stored),
    ...checkRecording(replay, stored, 'a replay'),
    ...checkStreams(runs, connections),
    ...checkEarlyEnds(runs, recording),
    ...checkRuns(runs, events, outages),
    ...effects.violations,
  ];
  return {
    violations: violations.map(({ kind, text }) => violation(kind, `${sessionId}: ${text}`)),
    runs: runs.length,
    commits: commits.length,
    events: events.length,
    terminalEvents: events.filter(({ type }) => type === 'completion').length,
    effects: effects.effects,
    unknown: effects.unknown,
    parked: events.filter(isParked).length,
    unreachable: events.filter((event) => isUnreachable(event, outages)).length,
  };
}

function checkOrder(events: readonly StoredEvent[]): Violation[] {
  return events.flatMap(({ seq, ts }, index) => [
    ...(seq === index + 1 ? [] : [violation('numbers', `event ${index + 1} has seq ${seq}`)]),
    ...(index === 0 || ts > (events[index - 1]?.ts ?? '')
      ? []
      : [violation('numbers', `ts of seq ${seq} does not rise`)]),
  ]);
}

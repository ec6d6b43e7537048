import type { RunRecord } from './check-runs';
import { violation, type Violation } from './violation';

/** What one connection of a client to its stream brought. */
export interface Connection {
  run: string;
  /** How often it said that the stream ends. */
  ends: number;
  /** Frames that came behind that. */
  behindEnd: number;
}

/** Compares what a client pieced together from all its connections with what is stored, byte for byte. */
export function checkRecording(
  recording: readonly string[],
  stored: readonly string[],
  who = 'the client',
): Violation[] {
  const found: Violation[] = [];
  const seen = new Set<number>();
  let newest = 0;
  for (const text of recording) {
    const { seq } = JSON.parse(text) as { seq: number };
    if (seen.has(seq)) found.push(violation('repeated', `${who} got seq ${seq} twice`));
    else if (seq < newest) found.push(violation('reordered', `${who} got seq ${seq} after ${newest}`));
    seen.add(seq);
    newest = Math.max(newest, seq);
    if (text !== stored[seq - 1])
      found.push(
        violation('altered', `${who} got ${text.slice(0, 200)} where ${stored[seq - 1]?.slice(0, 200)} is stored`),
      );
  }
  const missing = stored.flatMap((_, index) => (seen.has(index + 1) ? [] : [index + 1]));
  if (missing.length > 0) found.push(violation('lost', `${who} did not get seq ${missing.slice(0, 20).join(' ')}`));
  return found;
}

/** A stream ends only once its run has, and its client has seen that. */
export function checkEarlyEnds(runs: readonly RunRecord[], recording: readonly string[]): Violation[] {
  return runs.flatMap(({ name, framesAtEnd }, index) => {
    if (framesAtEnd === undefined) return [];
    const seen = recording.slice(0, framesAtEnd).filter((text) => text.includes('"type":"completion"')).length;
    return seen > index ? [] : [violation('terminal', `the stream of ${name} ended before its run`)];
  });
}

/** Every stream says once that it ends, as its last word, on the last connection of its run. */
export function checkStreams(runs: readonly RunRecord[], connections: readonly Connection[]): Violation[] {
  return runs.flatMap(({ name, endedAt }) => {
    const own = connections.filter(({ run }) => run === name);
    const ends = own.reduce((sum, connection) => sum + connection.ends, 0);
    const behind = own.reduce((sum, { behindEnd }) => sum + behindEnd, 0);
    return [
      ...(endedAt === undefined || ends === 1
        ? []
        : [violation('terminal', `the stream of ${name} ended ${ends} times`)]),
      ...(behind === 0 ? [] : [violation('terminal', `${behind} frames came behind the end of the stream of ${name}`)]),
    ];
  });
}

import { subjects, type LiveCommit, type LiveDelta, type runnersPb } from '@margay/contracts';
import { sessionState, type CommitDocument } from '@margay/log';
import type { NatsBus } from '@margay/platform';

/** Larger commits are announced by number only; readers fetch them. */
const LIVE_MAX_BYTES = 256 * 1024;

/** Announces a commit to all who follow the session. Lossy: who misses it finds it in the store. */
export function publishCommit(bus: Pick<NatsBus, 'publish'>, document: CommitDocument): void {
  const { c, events, head, tenantId, sessionId } = document;
  const frames = events.map(({ seq, ts, frame }): [number, number, string] => [seq, ts, frame]);
  // Its first field is the number: who only wants that need not parse the rest.
  const announced: LiveCommit = { c, state: JSON.stringify(sessionState(head)) };
  const whole = JSON.stringify({ c, frames, state: announced.state } satisfies LiveCommit);
  const text = Buffer.byteLength(whole) <= LIVE_MAX_BYTES ? whole : JSON.stringify(announced);
  bus.publish(subjects.sessionEvents(tenantId, sessionId), text);
}

const NUMBER_FIRST = /^\{"c":(\d+),/;
const NUMBER_BYTES = 32;

/** Number of the commit that a message of `publishCommit` announces. */
export function commitNumberOf(data: Uint8Array): number {
  const start = Buffer.from(data.buffer, data.byteOffset, Math.min(data.byteLength, NUMBER_BYTES)).toString('latin1');
  return Number(NUMBER_FIRST.exec(start)?.[1] ?? 0);
}

export function publishDelta(
  bus: Pick<NatsBus, 'publish'>,
  tenantId: string,
  run: { sessionId: string; runId: string },
  delta: runnersPb.JournalDelta,
): void {
  const { agentId, depth, step, offset, text, followsC } = delta;
  const message: LiveDelta = {
    c: followsC,
    runId: run.runId,
    payload: { text, agent_id: agentId, depth, step, offset },
  };
  bus.publish(subjects.sessionDeltas(tenantId, run.sessionId), JSON.stringify(message));
}

import { subjects, type LiveCommit, type LiveDelta, type runnersPb } from '@margay/contracts';
import { sessionState, type CommitDocument } from '@margay/log';
import type { NatsBus } from '@margay/platform';

/** Larger commits are announced by number only; readers fetch them. */
const LIVE_MAX_BYTES = 256 * 1024;

/** Announces a commit to all who follow the session. Lossy: who misses it finds it in the store. */
export function publishCommit(bus: NatsBus, document: CommitDocument): void {
  const bytes = document.events.reduce((sum, { frame }) => sum + frame.length, 0);
  const frames = document.events.map(({ seq, ts, frame }): [number, number, string] => [seq, ts, frame]);
  const message: LiveCommit = {
    c: document.c,
    ...(bytes <= LIVE_MAX_BYTES ? { frames } : {}),
    state: JSON.stringify(sessionState(document.head)),
  };
  bus.publish(subjects.sessionEvents(document.tenantId, document.sessionId), JSON.stringify(message));
}

export function publishDelta(
  bus: NatsBus,
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

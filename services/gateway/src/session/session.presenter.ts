import type { sessionsPb } from '@margay/contracts';
import { Answer } from '../http/answer';

/** Texts that are JSON already are joined, not parsed: what is stored is what is sent. */
const list = (name: string, texts: readonly string[], rest = '') =>
  Answer.json(`{"${name}":[${texts.join(',')}]${rest}}`);

export function presentCreated({ sessionId, replayed }: sessionsPb.CreateSessionResponse): Answer {
  return new Answer(200, { session_id: sessionId }).replayed(replayed);
}

export function presentList(
  { summariesJson }: sessionsPb.ListSessionsResponse,
  page?: { limit: number; offset: number },
): Answer {
  return list('sessions', summariesJson, page ? `,"limit":${page.limit},"offset":${page.offset}` : '');
}

export function presentSummary({ summaryJson }: sessionsPb.GetSessionResponse): Answer {
  return Answer.json(summaryJson);
}

export function presentAccepted(sessionId: string, { runId, replayed }: sessionsPb.AcceptRunResponse): Answer {
  return new Answer(202, { session_id: sessionId, accepted: true, run_id: runId }).replayed(replayed);
}

export function presentCanceled(sessionId: string, { canceled, replayed }: sessionsPb.CancelRunResponse): Answer {
  return new Answer(202, { session_id: sessionId, canceled }).replayed(replayed);
}

export function presentSent(sessionId: string, { steered, runId, replayed }: sessionsPb.SendMessageResponse): Answer {
  const body = { session_id: sessionId, enqueued: true };
  return (steered ? new Answer(202, body) : new Answer(200, { ...body, run_id: runId })).replayed(replayed);
}

export function presentInterrupted(
  sessionId: string,
  { interrupted, replayed }: sessionsPb.InterruptRunResponse,
): Answer {
  return new Answer(interrupted ? 202 : 200, { session_id: sessionId, interrupted }).replayed(replayed);
}

export function presentTerminated(sessionId: string, terminated: sessionsPb.TerminateSessionResponse): Answer {
  const { terminatedAt, cancelledTriggers } = terminated;
  const values = { status: 'terminated', terminated_at: terminatedAt, cancelled_triggers: cancelledTriggers };
  return new Answer(200, { session_id: sessionId, ...values });
}

export function presentEvents(sessionId: string, frames: readonly string[], state: sessionsPb.SessionState): Answer {
  return Answer.json(`{"session_id":"${sessionId}","events":[${frames.join(',')}],${state.json.trimStart().slice(1)}`);
}

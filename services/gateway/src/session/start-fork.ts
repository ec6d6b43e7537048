import type { SessionSummary } from '@margay/contracts';
import { NotFoundError } from '@margay/errors';
import type { Caller } from '../auth/admission';
import type { Backends } from '../backends';
import { Answer } from '../http/answer';
import type { DriveFacts } from '../http/parameters';
import type { CreateBody } from './session.dto';

/** The copy of a long session takes some seconds. */
export const FORK_TIMEOUT_MS = 120_000;

const SESSION_ID = /^[0-9a-f]{32}$/;

type Sessions = Backends['sessions'];

/** A new session that begins as a fork of another, named by its id or its tag; a tag that is known is reused instead. */
export async function startFork(
  sessions: Sessions,
  { call }: Caller,
  { fork_from: from, fork_at_ts: fromTs, session_tag: tag, context }: CreateBody,
  { idempotencyKey }: DriveFacts,
): Promise<Answer> {
  const known = tag ? await tagged(sessions, call, tag) : undefined;
  if (known !== undefined) return new Answer(200, { session_id: known });
  const sessionId = SESSION_ID.test(from ?? '') ? from : await tagged(sessions, call, from ?? '');
  if (!sessionId) throw new NotFoundError('session_not_found', `session '${from}' not found`);
  const asked = { sessionId, fromTs: fromTs ?? '', model: context?.model ?? '', tag: tag ?? '', idempotencyKey };
  const options = { ...call, timeoutMs: FORK_TIMEOUT_MS };
  const forked = await sessions.forkSession({ ...asked, compact: false }, options);
  return new Answer(200, { session_id: forked.sessionId }).replayed(forked.replayed);
}

async function tagged(sessions: Sessions, call: Caller['call'], tag: string): Promise<string | undefined> {
  const request = { includeArchived: true, projects: [], sessionIds: [], limit: 1, offset: 0, tag };
  const [json] = (await sessions.listSessions(request, call)).summariesJson;
  return json === undefined ? undefined : (JSON.parse(json) as SessionSummary).session_id;
}

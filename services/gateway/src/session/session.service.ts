import { Injectable } from '@nestjs/common';
import type { sessionsPb } from '@margay/contracts';
import { isMargayError, UnavailableError } from '@margay/errors';
import { faultPoint } from '@margay/platform';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import type { Answer } from '../http/answer';
import type { DriveFacts } from '../http/parameters';
import { isTrue } from '../http/query';
import { parseTime } from '../stream/cursor';
import type { CreateBody, EventsQuery, ListQuery, MessageBody, QueryBody } from './session.dto';
import {
  presentAccepted,
  presentCanceled,
  presentCreated,
  presentEvents,
  presentInterrupted,
  presentList,
  presentSent,
  presentSummary,
  presentTerminated,
} from './session.presenter';
import { startFork } from './start-fork';
import { truncateEvent } from './truncate-event';

/** Session routes: from checked input to a call of the session service, and back. */
@Injectable()
export class SessionService {
  constructor(private readonly backends: Backends) {}

  async create(caller: Caller, body: CreateBody, facts: DriveFacts): Promise<Answer> {
    if (body.fork_from) return startFork(this.sessions, caller, body, facts);
    const request = { ...settingsOf(body, facts), sessionTag: body.session_tag ?? '' };
    return presentCreated(await this.sessions.createSession(request, caller.call));
  }

  async list({ call }: Caller, query: ListQuery): Promise<Answer> {
    const limit = query.limit === undefined ? undefined : Number(query.limit);
    const offset = Number(query.offset ?? 0);
    // No limit is what zero means to a store.
    if (limit === 0) return presentList({ summariesJson: [] }, { limit, offset });
    const found = await this.sessions.listSessions(
      {
        includeArchived: isTrue(query.include_archived),
        projects: [query.project ?? []].flat(),
        sessionIds: [],
        pinned: query.pinned === undefined ? undefined : isTrue(query.pinned),
        limit,
        offset,
        tag: query.tag,
      },
      call,
    );
    return presentList(found, limit === undefined ? undefined : { limit, offset });
  }

  async summary({ call }: Caller, sessionId: string): Promise<Answer> {
    return presentSummary(await this.sessions.getSession({ sessionId }, call));
  }

  /** Starts a run; two texts are commands instead. */
  async query(caller: Caller, sessionId: string, body: QueryBody, facts: DriveFacts): Promise<Answer> {
    const text = body.query.trim();
    if (text === '/terminate') return this.cancel(caller, sessionId, facts);
    if (text === '/status') return this.summary(caller, sessionId);
    const request = {
      ...settingsOf(body, facts),
      sessionId,
      text: body.query,
      attachmentsJson: JSON.stringify(body.attachments ?? []),
    };
    const accepted = await this.sessions.acceptRun(request, caller.call);
    await faultPoint('gateway.before-accepted', () => `${sessionId} ${text}`);
    return presentAccepted(sessionId, accepted);
  }

  async message({ call }: Caller, sessionId: string, { text }: MessageBody, facts: DriveFacts): Promise<Answer> {
    return presentSent(sessionId, await this.sessions.sendMessage({ sessionId, text, ...facts }, call));
  }

  async interrupt({ call }: Caller, sessionId: string, { idempotencyKey }: DriveFacts): Promise<Answer> {
    return presentInterrupted(sessionId, await this.sessions.interruptRun({ sessionId, idempotencyKey }, call));
  }

  async terminate({ call }: Caller, sessionId: string): Promise<Answer> {
    return presentTerminated(sessionId, await this.sessions.terminateSession({ sessionId }, call));
  }

  async events({ call }: Caller, sessionId: string, query: EventsQuery): Promise<Answer> {
    const shown = isTrue(query.truncate) ? truncateEvent : (json: string) => json;
    const frames: string[] = [];
    let end: sessionsPb.SessionState | undefined;
    for await (const { commits, state } of this.sessions.readCommits({ sessionId, ...rangeOf(query) }, call)) {
      for (const { json } of commits.flatMap((commit) => commit.frames)) frames.push(shown(json));
      end = state ?? end;
    }
    if (!end) throw new UnavailableError('unavailable', `session ${sessionId} was read without its end; try again`);
    return presentEvents(sessionId, frames, end);
  }

  private get sessions(): Backends['sessions'] {
    return this.backends.sessions;
  }

  /** Cancels the active run only; nothing to cancel is no error. */
  private async cancel({ call }: Caller, sessionId: string, { idempotencyKey }: DriveFacts): Promise<Answer> {
    try {
      return presentCanceled(sessionId, await this.sessions.cancelRun({ sessionId, idempotencyKey }, call));
    } catch (error) {
      if (isMargayError(error) && NOTHING_TO_CANCEL.has(error.reason))
        return presentCanceled(sessionId, { canceled: false, replayed: false });
      throw error;
    }
  }
}

const NOTHING_TO_CANCEL = new Set(['no_active_run', 'session_terminated']);

/** Without `before` a page behind `after` goes forward; all others go back from their end. */
function rangeOf({ after, before, limit }: EventsQuery) {
  const afterTs = parseTime('after', after);
  const beforeTs = parseTime('before', before);
  const count = Number(limit ?? 0);
  const isForward = afterTs !== undefined && beforeTs === undefined;
  return {
    from: afterTs === undefined ? undefined : { $case: 'atOrAfterTs' as const, value: afterTs + 1 },
    // Nothing lies before the first microsecond, and 0 stands for no bound.
    beforeTs: beforeTs === undefined ? 0 : Math.max(1, beforeTs),
    last: isForward ? 0 : count,
    first: isForward ? count : 0,
  };
}

/** What create and query have in common. */
function settingsOf(body: CreateBody | QueryBody, facts: DriveFacts) {
  return {
    project: body.project ?? '',
    mode: body.mode ?? '',
    cwd: body.cwd ?? '',
    contextJson: JSON.stringify(contextOf(body, facts)),
    ...facts,
  };
}

/** The header beats what the body says of capabilities; a skill is a setting of the run. */
function contextOf(body: CreateBody | QueryBody, facts: DriveFacts): Record<string, unknown> {
  const { client_capabilities: ofBody, ...context } = (body.context ?? {}) as Record<string, unknown>;
  if (!facts.hasCapabilities && ofBody !== undefined) context['client_capabilities'] = ofBody;
  if ('query' in body) {
    if (body.skill != null) context['skill'] = body.skill;
    if (body.skill_args != null) context['skill_args'] = body.skill_args;
  } else {
    if (body.attachments != null) context['attachments'] = body.attachments;
    if (body.sandbox_class != null) context['sandbox_class'] = body.sandbox_class;
  }
  return context;
}

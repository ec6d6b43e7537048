import { Controller } from '@nestjs/common';
import { z } from 'zod';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromBody, FromCaller, FromHeaders, FromSessionId, type DriveFacts } from '../http/parameters';
import { DriveHeaders } from './session.dto';
import { FORK_TIMEOUT_MS } from './start-fork';

const TAG_MAX_CHARS = 256;

const ForkBody = z.object({
  from_ts: z.string().max(64).nullish().describe('ts of the last event to copy; absent: all are copied'),
  model: z.string().max(256).nullish().describe('model of the fork; absent: that of the source'),
  compact: z
    .union([z.boolean(), z.enum(['true', 'false'])])
    .nullish()
    .describe('not supported yet: true answers 400'),
  tag: z.string().max(TAG_MAX_CHARS).nullish().describe('tag of the new session; it may not be taken'),
});
type ForkBody = z.infer<typeof ForkBody>;

const Forked = z.object({
  session_id: z.string().describe('the new session'),
  forked_from: z.string(),
  forked_at: z.string().nullable().describe('null: all events were copied'),
});

@Controller()
export class ForkController {
  constructor(private readonly backends: Backends) {}

  @Operation({
    method: 'POST',
    path: '/api/sessions/{session_id}/fork',
    summary: 'Copy a session, or its beginning, into a new one',
    scope: 'sessions.create',
    service: 'session',
    family: 'reference',
    errors: 'message',
    headers: DriveHeaders,
    body: ForkBody,
    responses: { 201: { description: 'the fork', schema: Forked } },
    sample: { path: { session_id: '{ended_session_id}' }, body: { model: 'scripted/echo' }, status: 201 },
  })
  async fork(
    @FromCaller() { call }: Caller,
    @FromSessionId() sessionId: string,
    @FromBody() { from_ts: fromTs, model, compact, tag }: ForkBody,
    @FromHeaders() { idempotencyKey }: DriveFacts,
  ): Promise<Answer> {
    const asked = { sessionId, fromTs: fromTs ?? '', model: model ?? '', tag: tag ?? '', idempotencyKey };
    const request = { ...asked, compact: compact === true || compact === 'true' };
    const forked = await this.backends.sessions.forkSession(request, { ...call, timeoutMs: FORK_TIMEOUT_MS });
    const body = { session_id: forked.sessionId, forked_from: sessionId, forked_at: forked.forkedAt || null };
    return new Answer(201, body).replayed(forked.replayed);
  }
}

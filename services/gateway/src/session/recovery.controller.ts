import { Controller } from '@nestjs/common';
import { z } from 'zod';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromBody, FromCaller, FromHeaders, FromSessionId, type DriveFacts } from '../http/parameters';
import { RepeatHeaders } from './session.dto';

const TEXT_MAX_CHARS = 500_000;

const RecoverBody = z.object({
  action: z
    .string({ error: "Invalid input: 'action' must be 'retry' or 'continue'" })
    .describe('retry: run a turn again; continue: carry on where the last one stopped'),
  from_ts: z.string().max(64).nullish().describe('retry: ts of the user event to run again; absent: the last'),
  edited_text: z.string().max(TEXT_MAX_CHARS).nullish().describe('said instead'),
  model: z.string().max(256).nullish(),
});
type RecoverBody = z.infer<typeof RecoverBody>;

const Recovered = z.object({
  session_id: z.string(),
  action: z.string(),
  accepted: z.literal(true),
  run_id: z.string(),
});

@Controller()
export class RecoveryController {
  constructor(private readonly backends: Backends) {}

  @Operation({
    method: 'POST',
    path: '/api/sessions/{session_id}/recover',
    summary: 'Run a turn again in place of what followed it, or carry on',
    scope: 'sessions.interact',
    service: 'session',
    family: 'reference',
    errors: 'message',
    headers: RepeatHeaders,
    body: RecoverBody,
    responses: { 202: { description: 'the run is accepted', schema: Recovered } },
    sample: { path: { session_id: '{ended_session_id}' }, body: { action: 'continue' }, status: 202 },
  })
  async recover(
    @FromCaller() { call }: Caller,
    @FromSessionId() sessionId: string,
    @FromBody() { action, from_ts: fromTs, edited_text: editedText, model }: RecoverBody,
    @FromHeaders() { idempotencyKey }: DriveFacts,
  ): Promise<Answer> {
    const request = { sessionId, action, fromTs: fromTs ?? '', editedText: editedText ?? '', model: model ?? '' };
    const { runId, replayed } = await this.backends.sessions.recoverSession({ ...request, idempotencyKey }, call);
    return new Answer(202, { session_id: sessionId, action, accepted: true, run_id: runId }).replayed(replayed);
  }
}

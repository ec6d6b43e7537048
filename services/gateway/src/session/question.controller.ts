import { Controller, Param } from '@nestjs/common';
import { z } from 'zod';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromBody, FromCaller, FromHeaders, FromSessionId, type DriveFacts } from '../http/parameters';
import { RepeatHeaders } from './session.dto';

const AnswerBody = z.object({
  call_token: z.string({ error: "Invalid input: 'call_token' is required" }).describe('of the `user_question` event'),
  answers: z
    .array(z.unknown(), "Invalid input: 'answers' must be a list")
    .max(16)
    .describe('one per question, in order: `{"selected_indexes":[0]}` or `{"text":"…"}`'),
  notes: z.string().nullish(),
  answered_via: z.string().max(64).nullish().describe('how the answer came; default `rest`'),
});
type AnswerBody = z.infer<typeof AnswerBody>;

const Resolved = z.object({
  resolved: z.literal(true),
  delivery: z.enum(['run', 'message']).describe('message: the run had gone on or ended, so a new turn was opened'),
});

@Controller()
export class QuestionController {
  constructor(private readonly backends: Backends) {}

  @Operation({
    method: 'POST',
    path: '/api/sessions/{session_id}/questions/{call_id}/answer',
    summary: 'Answer a question that a run asks',
    scope: 'sessions.interact',
    service: 'session',
    family: 'reference',
    errors: 'message',
    headers: RepeatHeaders,
    body: AnswerBody,
    responses: { 200: { description: 'the answer counts', schema: Resolved } },
    sample: {
      path: { session_id: '{asking_session_id}', call_id: '{call_id}' },
      body: { call_token: 'token', answers: [{ text: 'blue' }] },
      status: 200,
    },
  })
  async answer(
    @FromCaller() { call }: Caller,
    @FromSessionId() sessionId: string,
    @Param('call_id') callId: string,
    @FromBody() body: AnswerBody,
    @FromHeaders() { idempotencyKey }: DriveFacts,
  ): Promise<Answer> {
    const { call_token: callToken, answers, notes, answered_via: via } = body;
    const said = { answersJson: JSON.stringify(answers), notes: notes ?? '', answeredVia: via ?? 'rest' };
    const request = { sessionId, callId, callToken, ...said, idempotencyKey };
    const { delivery, replayed } = await this.backends.sessions.answerQuestion(request, call);
    return new Answer(200, { resolved: true, delivery }).replayed(replayed);
  }
}

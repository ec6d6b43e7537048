import { Controller } from '@nestjs/common';
import { SessionSpec } from '@margay/contracts';
import { z } from 'zod';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromBody, FromCaller, FromHeaders, FromSessionId, type DriveFacts } from '../http/parameters';
import { RepeatHeaders } from '../session/session.dto';

const BindBody = z.strictObject({
  project: z.string("Invalid input: 'project' is required, and must be text").describe('in any form of its name'),
});

const Spec = z.object({
  session_id: z.string(),
  spec: SessionSpec,
  editable: z.record(z.string(), z.boolean()).describe('what of it can be changed now'),
  source: z.enum(['spec', 'legacy_context']),
});

const OF_SESSIONS = { service: 'session', family: 'reference', errors: 'envelope' } as const;
const anySession = { session_id: '{session_id}' };

/** What a session is, and in which project it works. */
@Controller()
export class BindingController {
  constructor(private readonly backends: Backends) {}

  @Operation({
    ...OF_SESSIONS,
    method: 'GET',
    path: '/api/sessions/{session_id}/spec',
    summary: 'What a session is: where it works, with which model and tools',
    scope: 'sessions.read',
    responses: { 200: { description: 'what its next run starts with', schema: Spec } },
    sample: { path: anySession, status: 200 },
  })
  async spec(@FromCaller() { call }: Caller, @FromSessionId() sessionId: string): Promise<Answer> {
    return Answer.json((await this.backends.sessions.getSpec({ sessionId }, call)).specJson);
  }

  @Operation({
    ...OF_SESSIONS,
    method: 'PUT',
    path: '/api/sessions/{session_id}/project',
    summary: 'Let the session work in another project from its next run on',
    scope: 'sessions.interact',
    headers: RepeatHeaders,
    body: BindBody,
    responses: { 200: { description: 'what the session is now', schema: Spec } },
    sample: { path: anySession, body: { project: 'shop' }, status: 200 },
  })
  async bind(
    @FromCaller() { call }: Caller,
    @FromSessionId() sessionId: string,
    @FromBody() { project }: z.infer<typeof BindBody>,
    @FromHeaders() { idempotencyKey }: DriveFacts,
  ): Promise<Answer> {
    const { specJson, replayed } = await this.backends.sessions.bindProject(
      { sessionId, project, idempotencyKey },
      call,
    );
    return Answer.json(specJson).replayed(replayed);
  }
}

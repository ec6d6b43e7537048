import { Controller } from '@nestjs/common';
import { z } from 'zod';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromCaller, FromSessionId } from '../http/parameters';

/** A log is read whole. */
const VERIFY_TIMEOUT_MS = 120_000;

const Verified = z.object({
  ok: z.boolean(),
  commits: z.number().int().describe('commits in order, from the first on'),
  head_hash: z.string().describe('hash of the last of them, which stands for all before it'),
  first_bad: z.number().int().optional().describe('number of the first commit that is wrong or missing'),
  problem: z.string().optional().describe('what is wrong with it'),
});

@Controller()
export class VerifyController {
  constructor(private readonly backends: Backends) {}

  @Operation({
    method: 'GET',
    path: '/api/sessions/{session_id}/verify',
    summary: 'Check that the stored log of a session is whole and unchanged',
    scope: 'sessions.read',
    service: 'session',
    family: 'margay',
    errors: 'envelope',
    responses: { 200: { description: 'what was found', schema: Verified } },
    sample: { path: { session_id: '{session_id}' }, status: 200 },
  })
  async verify(@FromCaller() { call }: Caller, @FromSessionId() sessionId: string): Promise<Answer> {
    const options = { ...call, timeoutMs: VERIFY_TIMEOUT_MS };
    const { ok, commits, headHash, firstBad, problem } = await this.backends.sessions.verifySession(
      { sessionId },
      options,
    );
    const found = ok ? {} : { first_bad: firstBad, problem };
    return new Answer(200, { ok, commits, head_hash: headHash, ...found });
  }
}

import { Controller } from '@nestjs/common';
import { NotFoundError } from '@margay/errors';
import { z } from 'zod';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromCaller, FromQuery } from '../http/parameters';

const LIMIT_MAX = 2_000;
const LIMIT = 200;
const QUERY_MAX_CHARS = 256;
const SESSION_ID = /^[0-9a-f]{32}$/;
/** The first look into a workspace may have to start a sandbox. */
const TIMEOUT_MS = 20_000;

const FilesQuery = z.object({
  project: z.string().optional(),
  session: z.string().optional(),
  q: z.string().max(QUERY_MAX_CHARS, `Invalid input: 'q' is longer than ${QUERY_MAX_CHARS} characters`).optional(),
  limit: z
    .string()
    .optional()
    .transform((text) => Math.min(Math.max(Math.trunc(Number(text ?? LIMIT)) || LIMIT, 1), LIMIT_MAX))
    .describe(`1 to ${LIMIT_MAX}, ${LIMIT} by default`),
});

const Files = z.object({
  files: z.array(z.string()).describe('relative paths'),
  attachments: z.array(z.string()),
  stale: z.boolean().optional().describe('the list is older than a minute, or not made yet; a new one is under way'),
  truncated: z.boolean().optional().describe('more match'),
});

@Controller()
export class FilesController {
  constructor(private readonly backends: Backends) {}

  @Operation({
    method: 'GET',
    path: '/api/files',
    summary: 'Paths in the workspace of a session or project, for completion',
    scope: 'sessions.read',
    service: 'tool-executor',
    family: 'reference',
    errors: 'message',
    hasPlainNotFound: true,
    query: FilesQuery,
    responses: { 200: { description: 'what matches, the likeliest first', schema: Files } },
    sample: { query: { project: 'shop', q: 'a', limit: '10' }, status: 200 },
  })
  async list(@FromCaller() { call }: Caller, @FromQuery() query: z.infer<typeof FilesQuery>): Promise<Answer> {
    const { project = '', session: sessionId = '', q = '', limit } = query;
    if (sessionId !== '' && !SESSION_ID.test(sessionId))
      throw new NotFoundError('session_not_found', 'Session not found.');
    const request = { sessionId, project, query: q, limit };
    const found = await this.backends.sessions.listFiles(request, { ...call, timeoutMs: TIMEOUT_MS });
    const { files, attachments, stale, truncated } = found;
    return new Answer(200, { files, attachments, ...(stale ? { stale } : {}), ...(truncated ? { truncated } : {}) });
  }
}

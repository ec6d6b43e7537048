import { Controller, Req, Res } from '@nestjs/common';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Caller } from '../auth/admission';
import { Operation } from '../http/operation';
import { FromCaller, FromQuery, FromSessionId } from '../http/parameters';
import { isTrue } from '../http/query';
import { streamCursor } from './cursor';
import { StreamHub } from './stream-hub';

const StreamQuery = z.object({
  after: z.string().optional().describe('first event by time, inclusive: ISO-8601 or epoch seconds'),
  ids: z.string().optional().describe('true: frames carry `id:` lines'),
  deltas: z.string().optional().describe('false: no text fragments'),
  api_key: z.string().optional().describe('for clients that cannot set headers'),
});
type StreamQuery = z.infer<typeof StreamQuery>;

const StreamHeaders = z.object({
  'Last-Event-ID': z.string().optional().describe('last event seen, exclusive; wins over `after` and switches ids on'),
});

@Controller()
export class StreamController {
  constructor(private readonly hub: StreamHub) {}

  @Operation({
    method: 'GET',
    path: '/api/sessions/{session_id}/stream',
    summary: 'Events of a session as they happen (server-sent events)',
    scope: 'sessions.read',
    service: 'session',
    family: 'reference',
    errors: 'message',
    query: StreamQuery,
    headers: StreamHeaders,
    responses: { 200: { description: 'frames of `data:`, one JSON object each', contentType: 'text/event-stream' } },
    sample: { path: { session_id: '{session_id}' }, status: 200 },
  })
  async stream(
    @FromCaller() caller: Caller,
    @FromSessionId() sessionId: string,
    @FromQuery() query: StreamQuery,
    @Req() request: FastifyRequest,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const lastEventId = request.headers['last-event-id'] as string | undefined;
    await this.hub.serve(
      {
        sessionId,
        caller,
        cursor: streamCursor(lastEventId, query.after),
        withIds: lastEventId !== undefined || isTrue(query.ids),
        withDeltas: query.deltas === undefined || isTrue(query.deltas),
      },
      reply,
    );
  }
}

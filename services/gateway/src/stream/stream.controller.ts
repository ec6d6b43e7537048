import { InvalidArgumentError } from '@margay/errors';
import { Controller, Req, Res } from '@nestjs/common';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { z } from 'zod';
import type { Caller } from '../auth/admission';
import { Operation } from '../http/operation';
import { FromCaller, FromQuery, FromSessionId } from '../http/parameters';
import { isTrue } from '../http/query';
import { streamCursor } from './cursor';
import { numbered } from './feed-commit';
import { StoreGeneration } from './store-generation';
import { StreamHub } from './stream-hub';
import { Sessions } from './wanted-sessions';

const inUrl = {
  api_key: z.string().optional().describe('for clients that cannot set headers'),
  ticket: z.string().optional().describe('instead of a key; purpose `stream`'),
};

const StreamQuery = z.object({
  after: z.string().optional().describe('first event by time, inclusive: ISO-8601 or epoch seconds'),
  ids: z.string().optional().describe('true: frames carry `id:` lines'),
  deltas: z.string().optional().describe('false: no text fragments'),
  ...inUrl,
});
type StreamQuery = z.infer<typeof StreamQuery>;

const MultiplexedQuery = z.object({
  sessions: Sessions.optional().describe(
    'at most 100, separated by commas: `<id>` for what comes, `<id>:<seq>` for all behind an event',
  ),
  user: z.string().optional().describe("true: also the states of the caller's sessions, as `event: user`"),
  deltas: z.string().optional().describe('false: no text fragments'),
  ...inUrl,
});
type MultiplexedQuery = z.infer<typeof MultiplexedQuery>;

const StreamHeaders = z.object({
  'Last-Event-ID': z.string().optional().describe('last event seen, exclusive; wins over `after` and switches ids on'),
});

@Controller()
export class StreamController {
  constructor(
    private readonly hub: StreamHub,
    private readonly generation: StoreGeneration,
  ) {}

  @Operation({
    method: 'GET',
    path: '/api/sessions/{session_id}/stream',
    summary: 'Events of a session as they happen (server-sent events)',
    scope: 'sessions.read',
    ticket: 'stream',
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
    const isNumbered = lastEventId !== undefined || isTrue(query.ids);
    const generation = isNumbered ? await this.generation.get() : 0;
    const cursor = streamCursor(lastEventId, query.after, generation);
    const style = isNumbered ? numbered(generation) : 'plain';
    await this.hub.serve({ sessionId, caller, cursor, style, withDeltas: withDeltas(query) }, reply);
  }

  @Operation({
    method: 'GET',
    path: '/api/stream',
    summary: 'Events of many sessions over one connection (server-sent events)',
    scope: 'sessions.read',
    ticket: 'stream',
    service: 'session',
    family: 'margay',
    errors: 'envelope',
    query: MultiplexedQuery,
    responses: { 200: { description: 'frames of `event:` and `data:`', contentType: 'text/event-stream' } },
    sample: { query: { sessions: '{session_id}:0', user: '1' }, status: 200 },
  })
  async streamMany(
    @FromCaller() caller: Caller,
    @FromQuery() query: MultiplexedQuery,
    @Res() reply: FastifyReply,
  ): Promise<void> {
    const wanted = query.sessions ?? [];
    const isUserWanted = isTrue(query.user) && caller.ticket?.user !== false;
    if (wanted.length === 0 && !isUserWanted) throw nothingWanted();
    await this.hub.serveMany({ caller, wanted, isUserWanted, withDeltas: withDeltas(query) }, reply);
  }
}

function withDeltas({ deltas }: { deltas?: string | undefined }): boolean {
  return deltas === undefined || isTrue(deltas);
}

function nothingWanted() {
  return new InvalidArgumentError(
    'validation',
    "Invalid input: 'sessions' names no session, and no 'user' is asked for",
  );
}

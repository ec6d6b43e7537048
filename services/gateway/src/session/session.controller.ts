import { SessionSummary } from '@margay/contracts';
import { Controller } from '@nestjs/common';
import type { Caller } from '../auth/admission';
import type { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromBody, FromCaller, FromHeaders, FromQuery, FromSessionId, type DriveFacts } from '../http/parameters';
import {
  Accepted,
  Canceled,
  CreateBody,
  Created,
  DriveHeaders,
  Enqueued,
  EventsPage,
  EventsQuery,
  Interrupted,
  ListQuery,
  MessageBody,
  QueryBody,
  RepeatHeaders,
  SessionList,
  Terminated,
} from './session.dto';
import { SessionService } from './session.service';

const OF_REFERENCE = { service: 'session', family: 'reference', errors: 'message' } as const;
const anySession = { session_id: '{session_id}' };

@Controller()
export class SessionController {
  constructor(private readonly sessions: SessionService) {}

  @Operation({
    ...OF_REFERENCE,
    method: 'POST',
    path: '/api/sessions',
    summary: 'Create a session, or find it by its tag',
    scope: 'sessions.create',
    headers: DriveHeaders,
    body: CreateBody,
    responses: { 200: { description: 'the session', schema: Created } },
    sample: { body: { context: { model: 'scripted/echo' } }, status: 200 },
  })
  create(
    @FromCaller() caller: Caller,
    @FromBody() body: CreateBody,
    @FromHeaders() facts: DriveFacts,
  ): Promise<Answer> {
    return this.sessions.create(caller, body, facts);
  }

  @Operation({
    ...OF_REFERENCE,
    method: 'GET',
    path: '/api/sessions',
    summary: 'List sessions, pinned first, then the newest',
    scope: 'sessions.read',
    query: ListQuery,
    responses: { 200: { description: 'the sessions', schema: SessionList } },
    sample: { query: { limit: '50' }, status: 200 },
  })
  list(@FromCaller() caller: Caller, @FromQuery() query: ListQuery): Promise<Answer> {
    return this.sessions.list(caller, query);
  }

  @Operation({
    method: 'GET',
    path: '/api/sessions/{session_id}',
    summary: 'Summary of a session',
    scope: 'sessions.read',
    service: 'session',
    family: 'margay',
    errors: 'envelope',
    responses: { 200: { description: 'the row that lists show', schema: SessionSummary } },
    sample: { path: anySession, status: 200 },
  })
  summary(@FromCaller() caller: Caller, @FromSessionId() sessionId: string): Promise<Answer> {
    return this.sessions.summary(caller, sessionId);
  }

  @Operation({
    ...OF_REFERENCE,
    method: 'POST',
    path: '/api/sessions/{session_id}/query',
    summary: 'Start a run; the texts /terminate and /status cancel the run and tell the state',
    scope: 'sessions.interact',
    headers: DriveHeaders,
    body: QueryBody,
    responses: {
      200: { description: 'answer of /status', schema: SessionSummary },
      202: { description: 'the run is accepted, or canceled', schema: Accepted.or(Canceled) },
    },
    sample: { path: anySession, body: { query: 'Which files are here?' }, status: 202 },
  })
  query(
    @FromCaller() caller: Caller,
    @FromSessionId() sessionId: string,
    @FromBody() body: QueryBody,
    @FromHeaders() facts: DriveFacts,
  ): Promise<Answer> {
    return this.sessions.query(caller, sessionId, body, facts);
  }

  @Operation({
    ...OF_REFERENCE,
    method: 'POST',
    path: '/api/sessions/{session_id}/message',
    summary: 'Steer the active run, or start one',
    scope: 'sessions.interact',
    headers: DriveHeaders,
    body: MessageBody,
    responses: {
      200: { description: 'a run was started', schema: Enqueued },
      202: { description: 'the active run was steered', schema: Enqueued },
    },
    sample: { path: anySession, body: { text: 'Look into the tests first.' }, status: 200 },
  })
  message(
    @FromCaller() caller: Caller,
    @FromSessionId() sessionId: string,
    @FromBody() body: MessageBody,
    @FromHeaders() facts: DriveFacts,
  ): Promise<Answer> {
    return this.sessions.message(caller, sessionId, body, facts);
  }

  @Operation({
    ...OF_REFERENCE,
    method: 'POST',
    path: '/api/sessions/{session_id}/interrupt',
    summary: 'Interrupt the current step of the active run',
    scope: 'sessions.interact',
    headers: RepeatHeaders,
    responses: {
      200: { description: 'no run was active', schema: Interrupted },
      202: { description: 'the step yields', schema: Interrupted },
    },
    sample: { path: anySession, status: 200 },
  })
  interrupt(
    @FromCaller() caller: Caller,
    @FromSessionId() sessionId: string,
    @FromHeaders() facts: DriveFacts,
  ): Promise<Answer> {
    return this.sessions.interrupt(caller, sessionId, facts);
  }

  @Operation({
    ...OF_REFERENCE,
    errors: 'envelope',
    method: 'POST',
    path: '/api/sessions/{session_id}/terminate',
    summary: 'End a session for ever',
    scope: 'sessions.interact',
    responses: { 200: { description: 'terminated, now or before', schema: Terminated } },
    sample: { path: anySession, status: 200 },
  })
  terminate(@FromCaller() caller: Caller, @FromSessionId() sessionId: string): Promise<Answer> {
    return this.sessions.terminate(caller, sessionId);
  }

  @Operation({
    ...OF_REFERENCE,
    method: 'GET',
    path: '/api/sessions/{session_id}/events',
    summary: 'Stored events and the present state',
    scope: 'sessions.read',
    query: EventsQuery,
    responses: { 200: { description: 'events in order', schema: EventsPage } },
    sample: { path: anySession, query: { truncate: '1' }, status: 200 },
  })
  events(
    @FromCaller() caller: Caller,
    @FromSessionId() sessionId: string,
    @FromQuery() query: EventsQuery,
  ): Promise<Answer> {
    return this.sessions.events(caller, sessionId, query);
  }
}

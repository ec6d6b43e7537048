import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { FakeSession } from './fake-session';

type Json = Record<string, unknown>;

export interface GatewayRequest {
  method: string;
  path: string;
  query: URLSearchParams;
  headers: IncomingMessage['headers'];
  body: Json;
}

/** Takes a request over; true = it was answered. */
export type Interceptor = (request: GatewayRequest, response: ServerResponse) => boolean | Promise<boolean>;

interface Answer {
  status: number;
  body: unknown;
  headers?: Record<string, string>;
}

/**
 * A public gateway in memory that speaks the exact wire of the session routes: frames with `seq` and `run_id`, both
 * error shapes, `Idempotency-Key`. Runs do what `onRun` says.
 */
export class FakeGateway {
  readonly sessions = new Map<string, FakeSession>();
  readonly requests: GatewayRequest[] = [];
  /** Asked in order before the routes. */
  readonly interceptors: Interceptor[] = [];
  /** Answers of `GET` routes without a session, by path. */
  readonly pages: Record<string, unknown> = {
    '/healthz': { status: 'ok' },
    '/api/tools': { tools: [] },
    '/api/projects': { projects: [] },
    '/api/models': { models: ['demo/scripted'], default: 'demo/scripted', capabilities: {} },
  };
  readonly apiKey = 'mk_local_test';
  onRun: (session: FakeSession, text: string) => unknown = () => undefined;
  readonly #answered = new Map<string, { body: string; answer: Answer }>();

  private constructor(
    private readonly server: Server,
    readonly url: string,
  ) {}

  static async start(): Promise<FakeGateway> {
    const server = createServer();
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const gateway = new FakeGateway(server, `http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    server.on('request', (request, response) => void gateway.#serve(request, response));
    return gateway;
  }

  async close(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }

  addSession(id = (this.sessions.size + 1).toString(16).padStart(2, '0').repeat(16)): FakeSession {
    const session = new FakeSession(id);
    this.sessions.set(id, session);
    return session;
  }

  async #serve(incoming: IncomingMessage, response: ServerResponse): Promise<void> {
    const request = await readRequest(incoming);
    this.requests.push(request);
    for (const interceptor of this.interceptors) if (await interceptor(request, response)) return;
    const answer = this.#route(request, response);
    if (answer) send(response, answer);
  }

  #route(request: GatewayRequest, response: ServerResponse): Answer | undefined {
    const { method, path } = request;
    if (path !== '/healthz' && request.headers['x-api-key'] !== this.apiKey)
      return { status: 401, body: { message: 'Unauthorized' }, headers: { 'X-Margay-Reason': 'unauthenticated' } };
    if (path === '/api/sessions')
      return method === 'POST' ? this.#keyed(request, () => this.#create(request)) : this.#list(request);
    if (method === 'GET' && path in this.pages) return { status: 200, body: this.pages[path] };
    const [, id = '', action = ''] = /^\/api\/sessions\/([^/]+)\/(\w+)$/.exec(path) ?? [];
    const session = this.sessions.get(id);
    if (!session)
      return envelope(404, id ? 'session_not_found' : 'not_found', id ? `session ${id} not found` : `no route ${path}`);
    return this.#session(session, action, request, response);
  }

  #session(
    session: FakeSession,
    action: string,
    request: GatewayRequest,
    response: ServerResponse,
  ): Answer | undefined {
    switch (action) {
      case 'query':
        return this.#keyed(request, () => this.#query(session, request));
      case 'message':
        return this.#keyed(request, () => this.#message(session, request));
      case 'interrupt':
        if (session.state.running) session.append('user_steer', { text: '[Interrupted by user]' });
        return { status: 202, body: { session_id: session.id, interrupted: session.state.running } };
      case 'terminate':
        Object.assign(session.state, { terminated: true, status: 'terminated', terminated_at: 'then' });
        return {
          status: 200,
          body: { session_id: session.id, status: 'terminated', terminated_at: 'then', cancelled_triggers: 0 },
        };
      case 'events':
        return {
          status: 200,
          body: {
            session_id: session.id,
            events: session.frames.map((text) => JSON.parse(text) as Json),
            ...session.state,
          },
        };
      case 'stream':
        return stream(session, request, response);
      default:
        return envelope(404, 'not_found', `no route ${request.path}`);
    }
  }

  /** Repeats the first answer for a repeated key. */
  #keyed(request: GatewayRequest, answer: () => Answer): Answer {
    const key = request.headers['idempotency-key'];
    if (typeof key !== 'string') return answer();
    const body = JSON.stringify(request.body);
    const earlier = this.#answered.get(key);
    if (!earlier) {
      const first = answer();
      if (first.status < 400) this.#answered.set(key, { body, answer: first });
      return first;
    }
    if (earlier.body === body) return { ...earlier.answer, headers: { 'Idempotency-Replayed': 'true' } };
    return envelope(409, 'idempotency_key_reused', 'the key was used with another body');
  }

  #create({ body }: GatewayRequest): Answer {
    const tag = typeof body.session_tag === 'string' ? body.session_tag : undefined;
    const known = [...this.sessions.values()].find((session) => tag !== undefined && session.tags.includes(tag));
    const session = known ?? this.addSession();
    if (tag !== undefined && !known) session.tags.push(tag);
    if (!known) session.append('session', { event: 'created' }).append('context', { model: 'demo/scripted' });
    return { status: 200, body: { session_id: session.id } };
  }

  #list({ query }: GatewayRequest): Answer {
    const offset = Number(query.get('offset') ?? 0);
    const limit = Number(query.get('limit') ?? 1000);
    const rows = [...this.sessions.values()].reverse().map(summary);
    return { status: 200, body: { sessions: rows.slice(offset, offset + limit), limit, offset } };
  }

  #query(session: FakeSession, { body }: GatewayRequest): Answer {
    const text = body.query;
    if (typeof text !== 'string' || !text.trim())
      return { status: 400, body: { message: "Invalid input: 'query' is required" } };
    if (text === '/terminate')
      return { status: 202, body: { session_id: session.id, canceled: this.#cancel(session) } };
    if (text === '/status') return { status: 200, body: summary(session) };
    if (session.state.terminated) return TERMINATED;
    if (session.state.running)
      return {
        status: 409,
        body: { message: 'Session is already running.' },
        headers: { 'X-Margay-Reason': 'session_running' },
      };
    return { status: 202, body: { session_id: session.id, accepted: true, run_id: this.#run(session, text) } };
  }

  #message(session: FakeSession, { body }: GatewayRequest): Answer {
    const text = String(body.text);
    if (session.state.terminated) return TERMINATED;
    if (!session.state.running)
      return { status: 200, body: { session_id: session.id, enqueued: true, run_id: this.#run(session, text) } };
    session.append('user_steer', { text });
    return { status: 202, body: { session_id: session.id, enqueued: true } };
  }

  #run(session: FakeSession, text: string): string {
    const runId = session.begin(text);
    setImmediate(() => this.onRun(session, text));
    return runId;
  }

  #cancel(session: FakeSession): boolean {
    if (!session.state.running) return false;
    session.finish('(Run canceled by user)', { done_reason: 'canceled' }, 'canceled');
    return true;
  }
}

const TERMINATED: Answer = {
  status: 410,
  body: { error: { code: 'session_terminated', reason: 'Session is permanently terminated', retryable: false } },
};

const envelope = (status: number, reason: string, message: string): Answer => ({
  status,
  body: { error: { code: status, reason: message, retryable: false } },
  headers: { 'X-Margay-Reason': reason },
});

function summary(session: FakeSession): Json {
  const created = '2026-08-03T10:15:42.000000+00:00';
  const first = session.frames[0];
  const last = session.frames.at(-1);
  const tsOf = (text: string | undefined): string =>
    text === undefined ? created : (JSON.parse(text) as { ts: string }).ts;
  return {
    session_id: session.id,
    created_at: tsOf(first),
    updated_at: tsOf(last),
    context: { model: 'demo/scripted' },
    origin: 'user',
    capabilities: [],
    workspace: null,
    archived: false,
    projects: [],
    tags: session.tags,
    ...session.state,
  };
}

function stream(session: FakeSession, { headers, query }: GatewayRequest, response: ServerResponse): undefined {
  const lastId = headers['last-event-id'];
  const after = query.get('after');
  const fromTime =
    after === null ? 0 : session.frames.findIndex((text) => (JSON.parse(text) as { ts: string }).ts >= after);
  const seq = lastId === undefined ? (fromTime < 0 ? session.frames.length : fromTime) : Number(lastId);
  response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-cache' });
  response.flushHeaders();
  session.listen(response, { seq, ids: query.has('ids') || lastId !== undefined });
}

function send(response: ServerResponse, { status, body, headers }: Answer): void {
  response.writeHead(status, { 'Content-Type': 'application/json', 'X-Request-Id': 'req-1', ...headers });
  response.end(JSON.stringify(body));
}

async function readRequest(incoming: IncomingMessage): Promise<GatewayRequest> {
  const chunks: Buffer[] = [];
  for await (const chunk of incoming) chunks.push(chunk as Buffer);
  const url = new URL(incoming.url ?? '/', 'http://gateway.invalid');
  const text = Buffer.concat(chunks).toString();
  const body = text ? (JSON.parse(text) as Json) : {};
  return {
    method: incoming.method ?? 'GET',
    path: url.pathname,
    query: url.searchParams,
    headers: incoming.headers,
    body,
  };
}

import { createServer } from 'node:net';
import { FakeGateway, QuickClock } from '@margay/testing';
import { MargayClient, isMargayError, type ClientOptions } from './index';

let gateway: FakeGateway;
let clock: QuickClock;

beforeEach(async () => {
  gateway = await FakeGateway.start();
  clock = new QuickClock();
});
afterEach(() => gateway.close());

const client = (options: Partial<ClientOptions> = {}): MargayClient =>
  new MargayClient({ baseUrl: gateway.url, apiKey: gateway.apiKey, clock, ...options });

/** Answers the next requests with these statuses, 0 = breaks the connection off after the route did its work. */
function failNext(...statuses: number[]): void {
  gateway.interceptors.push((_request, response) => {
    const status = statuses.shift();
    if (status) response.writeHead(status).end('{}');
    if (status === 0) response.end = () => response.destroy() as never;
    return Boolean(status);
  });
}

const answerWith = (status: number, body: unknown, headers: Record<string, string> = {}): void => {
  gateway.interceptors.push((_request, response) => {
    response.writeHead(status, { 'X-Request-Id': 'req-7', ...headers });
    response.end(typeof body === 'string' ? body : JSON.stringify(body));
    return true;
  });
};

describe('errors', () => {
  it.each([
    ['message shape', 400, { message: 'no' }, {}, { code: 'INVALID_ARGUMENT', reason: 'bad_request', message: 'no' }],
    ['header first', 409, { message: 'busy' }, { 'X-Margay-Reason': 'session_running' }, { reason: 'session_running' }],
    [
      'envelope',
      404,
      { error: { code: 404, reason: 'gone away' } },
      {},
      { code: 'NOT_FOUND', reason: 'not_found', message: 'gone away' },
    ],
    [
      'string code',
      410,
      { error: { code: 'session_terminated', reason: 'over' } },
      {},
      { reason: 'session_terminated', message: 'over' },
    ],
    ['word', 404, { error: 'unknown_command', name: 'x' }, {}, { reason: 'unknown_command', details: { name: 'x' } }],
    [
      'details',
      422,
      { error: { code: 'validation', reason: 'bad', details: { errors: [1] } } },
      {},
      { details: { errors: [1] } },
    ],
    ['candidates', 409, { message: 'which', candidates: ['a/b'] }, {}, { details: { candidates: ['a/b'] } }],
    [
      'a page',
      500,
      '<p>oops</p>',
      {},
      { code: 'INTERNAL', reason: 'internal', message: 'PATCH /x was answered with status 500' },
    ],
    ['unlisted', 418, {}, {}, { code: 'INVALID_ARGUMENT', reason: 'bad_request' }],
    [
      'retry later',
      429,
      { error: { code: 'rate_limited', reason: 'slow' } },
      { 'Retry-After': '2' },
      { retryAfterMs: 2000, retryable: true },
    ],
  ])('reads %s', async (_name, status, body, headers, expected) => {
    answerWith(status, body, headers);
    const error: unknown = await client()
      .request('PATCH', '/x', { query: { secret: 's' } })
      .catch((reason: unknown) => reason);
    expect(isMargayError(error)).toBe(true);
    expect(error).toMatchObject({
      ...expected,
      http: { method: 'PATCH', path: '/x', status, requestId: 'req-7', body },
    });
  });

  it('names the address and the cause when nobody listens', async () => {
    const port = await freePort();
    const refused = client({ baseUrl: `http://127.0.0.1:${port}` }).models();
    await expect(refused).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      reason: 'network',
      message: `cannot reach http://127.0.0.1:${port}: connection refused`,
    });
  });

  it('rejects an answer that is not JSON', async () => {
    answerWith(200, '<p>login</p>');
    await expect(client().models()).rejects.toMatchObject({ code: 'INTERNAL', reason: 'bad_answer' });
  });

  it.each([
    [{ apiKey: '' }, 'apiKey'],
    [{ baseUrl: 'localhost:1' }, 'baseUrl'],
    [{ timeoutMs: 0 }, 'timeoutMs'],
    [{ maxAttempts: 0 }, 'maxAttempts'],
  ])('refuses faulty options %j', (options, name) => {
    expect(() => client(options)).toThrow(name);
  });
});

describe('attempts', () => {
  it('repeats what is safe to repeat with full jitter, three times in all', async () => {
    failNext(503, 502);
    await client().models();
    expect(clock.waits).toEqual([125, 250]);
    clock.waits.length = 0;
    failNext(504, 504, 504);
    await expect(client().models()).rejects.toMatchObject({ http: { status: 504 } });
    expect(clock.waits).toHaveLength(2);
  });

  it('does not repeat other failures, nor a POST without a key', async () => {
    failNext(500);
    await expect(client().models()).rejects.toMatchObject({ code: 'INTERNAL' });
    failNext(503);
    await expect(client().request('POST', '/api/sessions')).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    expect(clock.waits).toEqual([]);
  });

  it('makes one run of a query whose answers were lost', async () => {
    const session = await client().sessions.create();
    failNext(0, 0);
    const run = await session.query('hello');
    expect(run.id).toBe(`${session.id}:r1`);
    const queries = gateway.requests.filter(({ path }) => path.endsWith('/query'));
    expect(queries).toHaveLength(3);
    expect(new Set(queries.map(({ headers }) => headers['idempotency-key'])).size).toBe(1);
    expect(gateway.sessions.get(session.id)?.runs).toBe(1);
  });

  it('makes one session of a create whose answer was lost', async () => {
    failNext(0);
    await client().sessions.create();
    expect(gateway.sessions.size).toBe(1);
  });

  it('takes a new key for each call, and refuses a reused one with another body', async () => {
    const session = await client().sessions.create();
    await session.query('one');
    await session.message('two');
    const keys = gateway.requests.map(({ headers }) => headers['idempotency-key']);
    expect(new Set(keys).size).toBe(3);
    await expect(session.message('three', { idempotencyKey: String(keys[2]) })).rejects.toMatchObject({
      reason: 'idempotency_key_reused',
    });
  });

  it('asks again while the first attempt is still being worked on', async () => {
    answerWith(409, { error: { code: 'idempotency_in_progress', reason: 'wait' } });
    const created = client({ maxAttempts: 2 }).sessions.create();
    await expect(created).rejects.toMatchObject({ reason: 'idempotency_in_progress' });
    expect(gateway.requests).toHaveLength(2);
  });

  it('gives the error at once when Retry-After is beyond the time-out', async () => {
    answerWith(503, {}, { 'Retry-After': '60' });
    await expect(client().models()).rejects.toMatchObject({ http: { status: 503 }, retryAfterMs: 60_000 });
    expect(gateway.requests).toHaveLength(1);
  });
});

describe('time-out and abort', () => {
  const hang = (): Promise<void> =>
    new Promise((resolve) => {
      gateway.interceptors.push(() => {
        resolve();
        return true;
      });
    });

  it('gives up after timeoutMs', async () => {
    const asked = hang();
    const answer = client().models();
    const outcome = expect(answer).rejects.toMatchObject({ code: 'DEADLINE_EXCEEDED', reason: 'timeout' });
    await asked;
    clock.advance(30_000);
    await outcome;
    expect(clock.pending).toBe(0);
  });

  it('rejects with `aborted` before, during and between attempts, leaving no timer', async () => {
    const early = AbortSignal.abort();
    await expect(client().models({ signal: early })).rejects.toMatchObject({ reason: 'aborted' });

    const during = new AbortController();
    const asked = hang();
    const answer = expect(client().models({ signal: during.signal })).rejects.toMatchObject({ reason: 'aborted' });
    await asked;
    during.abort();
    await answer;

    gateway.interceptors.length = 0;
    failNext(503);
    const between = new AbortController();
    const quiet = new QuickClock(0); // nothing passes by itself
    const waiting = expect(client({ clock: quiet }).models({ signal: between.signal })).rejects.toMatchObject({
      reason: 'aborted',
    });
    while (gateway.requests.length < 2 || quiet.pending !== 1) await new Promise((resolve) => setImmediate(resolve));
    between.abort();
    await waiting;
    expect([clock.pending, quiet.pending]).toEqual([0, 0]);
  });
});

it('sends key, tenant, surface, capabilities and own headers, and keeps a path prefix', async () => {
  gateway.interceptors.push((request, response) => {
    response.end(JSON.stringify({ path: request.path, many: request.query.getAll('p'), headers: request.headers }));
    return true;
  });
  const options = {
    baseUrl: `${gateway.url}/prefix/`,
    tenant: 'acme',
    surface: 'cli',
    capabilities: ['a', 'b'],
    headers: { 'X-Own': '1' },
  };
  const answer = await client(options).request('GET', '/api/x', { query: { p: ['1', '2'], q: undefined } });
  expect(answer).toMatchObject({
    path: '/prefix/api/x',
    many: ['1', '2'],
    headers: {
      'x-api-key': gateway.apiKey,
      'x-margay-tenant': 'acme',
      'x-margay-surface': 'cli',
      'x-margay-capabilities': 'a, b',
      'x-own': '1',
    },
  });
});

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const { port } = server.address() as { port: number };
  await new Promise((resolve) => server.close(resolve));
  return port;
}

import { request as rawRequest } from 'node:http';
import { GatewayHarness, MASTER_TOKEN } from '../spec/gateway-harness';

describe('public HTTP', () => {
  let harness: GatewayHarness;
  beforeEach(() => {
    harness = new GatewayHarness();
  });
  afterEach(() => harness.stop());

  describe('unmatched paths', () => {
    it('answer JSON on every method, without a key', async () => {
      await harness.start();
      for (const [method, path] of [
        ['GET', '/api/nothing'],
        ['DELETE', '/api/sessions'],
        ['PUT', '/v1/x'],
        ['GET', '/'],
        ['PATCH', '/ide/x/y'],
        ['HEAD', '/healthz'],
      ] as const) {
        const { status, headers, body } = await harness.request(method, `${path}?api_key=secret`, { key: null });
        expect([path, status]).toEqual([path, 404]);
        expect(headers.get('x-request-id')).toMatch(/^[\w.:-]+$/);
        if (method === 'HEAD') continue;
        expect(headers.get('content-type')).toContain('application/json');
        expect(body).toEqual({ error: { code: 404, reason: `no route ${method} ${path}`, retryable: false } });
      }
    });

    it('include paths that cannot be decoded', async () => {
      await harness.start();
      const { status, text } = await raw(harness.gateway.port, '/api/%zz?api_key=plain-secret');
      expect(status).toBe(400);
      expect(text).not.toContain('plain-secret');
      expect(JSON.parse(text)).toMatchObject({ error: { code: 400 } });
    });
  });

  describe('bodies', () => {
    it('above 1 MB are refused in the shape of the route', async () => {
      await harness.start();
      const id = await harness.session.createSession();
      const rawBody = JSON.stringify({ query: 'x'.repeat(1_100_000) });
      const ofMessage = await harness.request('POST', `/api/sessions/${id}/query`, { rawBody });
      expect([ofMessage.status, ofMessage.body]).toEqual([413, { message: 'the body is larger than 1 MB' }]);
      expect(ofMessage.headers.get('x-margay-reason')).toBe('too_large');
      const ofEnvelope = await harness.request('POST', `/api/sessions/${id}/terminate`, { rawBody });
      const error = { code: 413, reason: 'the body is larger than 1 MB', retryable: false };
      expect([ofEnvelope.status, ofEnvelope.body]).toEqual([413, { error }]);
    });

    it('are not read before the credential is known', async () => {
      await harness.start();
      const rawBody = 'x'.repeat(1_100_000);
      expect((await harness.request('POST', '/api/sessions', { key: null, rawBody })).status).toBe(401);
    });

    it('are JSON whatever the content type says', async () => {
      await harness.start();
      const id = await harness.session.createSession();
      const headers = { 'Content-Type': 'application/x-www-form-urlencoded' };
      const { status } = await harness.request('POST', `/api/sessions/${id}/query`, {
        rawBody: '{"query":"hi"}',
        headers,
      });
      expect(status).toBe(202);
    });
  });

  describe('request ids', () => {
    it('are taken over if usable, and on every answer', async () => {
      await harness.start();
      const given = await harness.get('/healthz', { headers: { 'X-Request-Id': 'abc-1' } });
      expect(given.headers.get('x-request-id')).toBe('abc-1');
      for (const path of ['/healthz', '/api/models', '/nowhere']) {
        const { headers } = await harness.get(path, { headers: { 'X-Request-Id': 'no spaces' } });
        expect(headers.get('x-request-id')).toMatch(/^[0-9a-f-]{36}$/);
      }
      expect((await harness.get('/api/models', { key: null })).headers.get('x-request-id')).not.toBeNull();
    });
  });

  describe('CORS', () => {
    const preflight = (origin = 'http://console.test') =>
      harness.request('OPTIONS', '/api/sessions', {
        key: null,
        headers: {
          Origin: origin,
          'Access-Control-Request-Method': 'POST',
          'Access-Control-Request-Headers': 'X-API-KEY',
        },
      });

    it('allows any origin by default, without credentials and without a key', async () => {
      await harness.start();
      const { status, headers } = await preflight();
      expect(status).toBe(204);
      expect(headers.get('access-control-allow-origin')).toBe('*');
      expect(headers.get('access-control-allow-credentials')).toBeNull();
      expect(headers.get('access-control-allow-methods')).toBe('GET, POST, PUT, PATCH, DELETE, OPTIONS');
      for (const name of [
        'X-API-KEY',
        'X-Mewbo-Capabilities',
        'X-Margay-Tenant',
        'Authorization',
        'Last-Event-ID',
        'Idempotency-Key',
      ])
        expect(headers.get('access-control-allow-headers')).toContain(name);
    });

    it('exposes its headers also on errors', async () => {
      await harness.start();
      const { headers } = await harness.get('/api/sessions', { key: null, headers: { Origin: 'http://console.test' } });
      expect(headers.get('access-control-allow-origin')).toBe('*');
      for (const name of ['Retry-After', 'X-Request-Id', 'X-Margay-Reason', 'Idempotency-Replayed'])
        expect(headers.get('access-control-expose-headers')).toContain(name);
    });

    it('allows credentials only with one exact origin', async () => {
      await harness.start({ corsOrigins: ['http://console.test'] });
      const { headers } = await preflight();
      expect(headers.get('access-control-allow-origin')).toBe('http://console.test');
      expect(headers.get('access-control-allow-credentials')).toBe('true');
      expect((await preflight('http://evil.test')).headers.get('access-control-allow-origin')).not.toBe(
        'http://evil.test',
      );
    });

    it('answers OPTIONS without the headers of a preflight', async () => {
      await harness.start();
      expect((await harness.request('OPTIONS', '/api/sessions', { key: null })).status).toBe(204);
    });
  });

  describe('credentials', () => {
    const models = (headers: Record<string, string> = {}, search = '') =>
      harness.get(`/api/models${search}`, { key: null, headers });

    it('are taken from X-API-KEY, then Bearer, then api_key; the first one decides', async () => {
      await harness.start();
      const { text } = harness.key;
      expect((await models({ 'X-API-Key': text })).status).toBe(200);
      expect((await models({ Authorization: `Bearer ${text}` })).status).toBe(200);
      expect((await models({}, `?api_key=${text}`)).status).toBe(200);
      expect((await models({ 'X-API-KEY': 'wrong', Authorization: `Bearer ${text}` })).status).toBe(401);
      expect((await models({ Authorization: 'Bearer wrong' }, `?api_key=${text}`)).status).toBe(401);
      expect((await models({ 'X-API-KEY': text }, '?api_key=wrong')).status).toBe(200);
    });

    it('have two bodies when missing or wrong', async () => {
      await harness.start();
      const missing = await models();
      expect([missing.status, missing.body]).toEqual([401, { message: 'API token is not provided.' }]);
      const unknown = `mk_local_${'0'.repeat(32)}_${'x'.repeat(43)}`;
      for (const wrong of ['x', 'mk_local_zz_y', unknown, 'x'.repeat(600)]) {
        const answer = await models({ 'X-API-KEY': wrong });
        expect([answer.status, answer.body]).toEqual([401, { message: 'Unauthorized' }]);
        expect(answer.headers.get('x-margay-reason')).toBe('unauthenticated');
      }
    });

    it('are looked up once in five seconds, the wrong ones too, until keys change', async () => {
      await harness.start();
      for (let n = 0; n < 3; n += 1) await models({ 'X-API-KEY': harness.key.text });
      expect(harness.session.countOf('authenticate')).toBe(1);
      const unknown = `mk_local_${'0'.repeat(32)}_${'x'.repeat(43)}`;
      for (let n = 0; n < 3; n += 1) await models({ 'X-API-KEY': unknown });
      expect(harness.session.countOf('authenticate')).toBe(2);
      harness.session.revokeKey(harness.key);
      expect((await models({ 'X-API-KEY': harness.key.text })).status).toBe(200);
      harness.bus.deliver('margay.config.keys', '{}');
      expect((await models({ 'X-API-KEY': harness.key.text })).status).toBe(401);
    });

    it('never appear in a log line', async () => {
      await harness.start();
      await models({}, `?api_key=${harness.key.text}`);
      await models({}, '?api_key=plain-secret');
      const lines = harness.logLines.join('');
      expect(lines).toContain('request answered');
      expect(lines).not.toContain(harness.key.text.slice(-43));
      expect(lines).not.toContain('plain-secret');
    });

    it('accept the master token only where one is set', async () => {
      await harness.start({ masterToken: undefined });
      expect((await models({ 'X-API-KEY': MASTER_TOKEN })).status).toBe(401);
    });

    it('refuse a tenant header that is no id', async () => {
      await harness.start();
      const { status } = await models({ 'X-API-KEY': MASTER_TOKEN, 'X-Margay-Tenant': 'a.>' });
      expect(status).toBe(400);
    });
  });

  describe('scopes', () => {
    it('are refused with an envelope naming them', async () => {
      await harness.start();
      const id = await harness.session.createSession();
      const viewer = harness.session.addKey({ role: 'viewer' }).text;
      expect((await harness.get(`/api/sessions/${id}`, { key: viewer })).status).toBe(200);
      const headers = { 'X-Request-Id': 'r-3' };
      const { status, body } = await harness.post(`/api/sessions/${id}/query`, {}, { key: viewer, headers });
      expect(status).toBe(403);
      const reason = 'this needs the scope sessions.interact';
      const details = { scope: 'sessions.interact' };
      const error = { code: 'permission_denied', status: 403, reason, retryable: false, request_id: 'r-3', details };
      expect(body).toEqual({ error, message: reason });
    });

    it('of a key narrow its role', async () => {
      await harness.start();
      const narrow = harness.session.addKey({ scopes: ['catalog.read'], allScopes: false }).text;
      expect((await harness.get('/api/models', { key: narrow })).status).toBe(200);
      expect((await harness.get('/api/sessions', { key: narrow })).status).toBe(403);
      const family = harness.session.addKey({ scopes: ['sessions.*'], allScopes: false }).text;
      expect((await harness.post('/api/sessions', {}, { key: family })).status).toBe(200);
    });
  });

  describe('rate limit', () => {
    it('is kept per tenant, answers 429 and is counted', async () => {
      await harness.start({ rateLimit: { perSecond: 1, burst: 3 } });
      const other = harness.session.addKey({ tenantId: 'other' }).text;
      for (let n = 0; n < 3; n += 1) expect((await harness.get('/api/models')).status).toBe(200);
      const { status, headers, body } = await harness.get('/api/models');
      expect([status, headers.get('retry-after'), headers.get('x-margay-reason')]).toEqual([429, '1', 'rate_limited']);
      expect(body).toMatchObject({ error: { code: 'rate_limited', status: 429, retryable: true } });
      expect((await harness.get('/api/models', { key: other })).status).toBe(200);
      expect((await harness.get('/healthz')).status).toBe(200);
      expect(await harness.registry.getSingleMetricAsString('margay_rate_limited_total')).toContain(
        '{scope="tenant"} 1',
      );
    });
  });

  describe('identity', () => {
    it('answers for the deployment without a key, with every permission', async () => {
      await harness.start();
      const { status, body } = await harness.get('/api/auth/me', { key: null });
      expect(status).toBe(200);
      expect(body).toMatchObject({ authenticated: true, auth_enabled: false, subject: 'svc:legacy', roles: ['admin'] });
      const { permissions } = body as { permissions: string[] };
      for (const scope of ['sessions.read', 'sessions.create', 'keys.admin', 'tenant.admin'])
        expect(permissions).toContain(scope);
    });

    it('answers for the key where one is sent', async () => {
      await harness.start();
      const viewer = harness.session.addKey({ role: 'viewer', principal: 'user:eve' }).text;
      const { body } = await harness.get('/api/auth/me', { key: viewer });
      expect(body).toMatchObject({ subject: 'user:eve', kind: 'user', roles: ['viewer'] });
      expect((body as { permissions: string[] }).permissions).not.toContain('sessions.create');
      expect((await harness.get('/api/auth/me')).body).toMatchObject({ subject: 'user:ada', roles: ['admin'] });
      expect((await harness.get('/api/auth/me', { key: 'wrong' })).status).toBe(401);
    });
  });

  describe('catalogue and system', () => {
    it('lists tools, projects and models', async () => {
      await harness.start();
      const { body } = await harness.get('/api/tools?project=shop');
      expect(body).toEqual({
        tools: [
          {
            tool_id: 'read_file',
            name: 'read_file',
            kind: 'local',
            enabled: true,
            description: 'Reads a file.',
            disabled_reason: null,
            server: null,
            scope: 'builtin',
            requires_capability: null,
          },
        ],
      });
      expect((await harness.get('/api/projects')).body).toMatchObject({
        projects: [{ name: 'shop', source: 'config' }],
      });
      expect((await harness.get('/api/models')).body).toEqual({
        models: ['scripted/echo'],
        default: 'scripted/echo',
        capabilities: { 'scripted/echo': { supports_vision: false } },
      });
    });

    it('tells its versions to those with a key, its health to all', async () => {
      await harness.start();
      expect((await harness.get('/api/system')).body).toMatchObject({ versions: { api: '1' }, counts: { streams: 0 } });
      expect((await harness.get('/api/system', { key: null })).status).toBe(401);
      expect((await harness.get('/healthz', { key: null })).body).toEqual({ status: 'ok' });
    });

    it('measures requests by route', async () => {
      await harness.start();
      const id = await harness.session.createSession();
      await harness.get(`/api/sessions/${id}/events`);
      const text = await harness.registry.getSingleMetricAsString('margay_http_request_duration_seconds');
      expect(text).toContain('{route="/api/sessions/{session_id}/events",method="GET",status="200"} 1');
      expect(text).not.toContain(id);
    });
  });
});

/** A request whose path no client library would send. */
function raw(port: number, path: string): Promise<{ status: number; text: string }> {
  return new Promise((resolve, reject) => {
    const request = rawRequest({ port, host: '127.0.0.1', path, agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
      response.on('end', () => resolve({ status: response.statusCode ?? 0, text }));
    });
    request.on('error', reject).end();
  });
}

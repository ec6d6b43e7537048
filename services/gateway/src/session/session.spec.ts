import { errorOf, UnavailableError } from '@margay/errors';
import { CALL_TOKEN } from '../spec/fake-session';
import { GatewayHarness, MASTER_TOKEN } from '../spec/gateway-harness';

const TERMINATED = {
  error: { code: 'session_terminated', reason: 'Session is permanently terminated', retryable: false },
};

describe('session routes', () => {
  let harness: GatewayHarness;
  let id: string;
  const query = (body: unknown, headers: Record<string, string> = {}) =>
    harness.post(`/api/sessions/${id}/query`, body, { headers });
  const lastRequest = (method: string) =>
    harness.session.calls.filter((call) => call.method === method).at(-1)?.request as Record<string, unknown>;

  beforeEach(async () => {
    harness = new GatewayHarness();
    await harness.start();
    id = await harness.session.createSession();
  });
  afterEach(() => harness.stop());

  describe('create', () => {
    it('answers 200 with the id, for no body, an empty one and unknown fields', async () => {
      for (const rawBody of [undefined, '', '  ', '{}', '{"colour":"red"}']) {
        const { status, body } = await harness.request(
          'POST',
          '/api/sessions',
          rawBody === undefined ? {} : { rawBody },
        );
        expect(status).toBe(200);
        expect(body).toEqual({ session_id: expect.stringMatching(/^[0-9a-f]{32}$/) });
      }
    });

    it('passes settings on, and fields that are null as absent', async () => {
      const context = { model: 'scripted/echo', mcp_tools: [] };
      await harness.post('/api/sessions', { session_tag: 't', project: 'shop', mode: null, context, cwd: null });
      expect(lastRequest('createSession')).toMatchObject({
        sessionTag: 't',
        project: 'shop',
        mode: '',
        cwd: '',
        surface: 'api',
      });
      expect(JSON.parse(String(lastRequest('createSession')['contextJson']))).toEqual(context);
    });

    it.each([
      ['{"mode":"fly"}', "'mode'"],
      ['{"mode":7}', "'mode'"],
      ['{"session_tag":[]}', "'session_tag'"],
      ['{"context":"x"}', "'context'"],
      ['{"context":[1]}', "'context'"],
      ['{"attachments":{}}', "'attachments'"],
      ['[]', 'the body'],
      ['"text"', 'the body'],
      ['{"a":', 'not valid JSON'],
    ])('answers %s with 400 naming %s', async (rawBody, named) => {
      const { status, body, headers } = await harness.request('POST', '/api/sessions', { rawBody });
      expect(status).toBe(400);
      expect(body).toEqual({ message: expect.stringContaining(named) });
      expect(headers.get('x-margay-reason')).toBe('bad_request');
    });

    it('refuses a context above 4 KB and what the session refuses as too large', async () => {
      const large = await harness.post('/api/sessions', { context: { note: 'é'.repeat(2_100) } });
      expect([large.status, large.body]).toEqual([
        400,
        { message: "Invalid input: 'context' is larger than 4096 bytes" },
      ]);
      harness.session.failures.set(
        'acceptRun',
        errorOf('INVALID_ARGUMENT', 'head_too_large', 'the context would grow too large'),
      );
      const grown = await query({ query: 'hi' });
      expect([grown.status, grown.body]).toEqual([400, { message: 'the context would grow too large' }]);
    });

    it('refuses malformed device tools', async () => {
      const { status, body } = await harness.post('/api/sessions', {
        context: { device_tools: [{ tool_id: 'open' }] },
      });
      expect(status).toBe(400);
      expect(body).toEqual({ message: expect.stringContaining("'tool_id'") });
    });
  });

  describe('query', () => {
    it('answers 202 with the run', async () => {
      const { status, body } = await query({ query: 'hi' });
      expect(status).toBe(202);
      expect(body).toEqual({ session_id: id, accepted: true, run_id: `${id}:r1` });
    });

    it.each([{}, { query: '' }, { query: '  \n' }, { query: null }])('calls the query of %j missing', async (body) => {
      const answer = await query(body);
      expect([answer.status, answer.body]).toEqual([400, { message: "Invalid input: 'query' is required" }]);
    });

    it('names a query of another type and one that is too long', async () => {
      expect((await query({ query: 7 })).body).toEqual({ message: "Invalid input: 'query' must be a string" });
      const long = await query({ query: 'x'.repeat(500_001) });
      expect([long.status, long.body]).toEqual([
        400,
        { message: "Invalid input: 'query' is longer than 500000 characters" },
      ]);
      expect((await query({ query: 'x'.repeat(500_000) })).status).toBe(202);
    });

    it('answers 409 while a run is active', async () => {
      await query({ query: 'hi' });
      const { status, body, headers } = await query({ query: 'again' });
      expect([status, body]).toEqual([409, { message: 'Session is already running.' }]);
      expect(headers.get('x-margay-reason')).toBe('session_running');
    });

    it('cancels the active run, and only that, on the text /terminate', async () => {
      expect((await query({ query: '/terminate' })).body).toEqual({ session_id: id, canceled: false });
      await query({ query: 'hi' });
      const { status, body } = await query({ query: ' /terminate\n' });
      expect([status, body]).toEqual([202, { session_id: id, canceled: true }]);
      expect((await query({ query: 'usable' })).status).toBe(202);
    });

    it('answers the summary on the text /status', async () => {
      const { status, body } = await query({ query: '/status' });
      expect(status).toBe(200);
      expect(body).toMatchObject({ session_id: id, status: 'idle', running: false });
    });

    it('treats the commands before it looks at a termination', async () => {
      await harness.post(`/api/sessions/${id}/terminate`);
      expect((await query({ query: '/terminate' })).body).toEqual({ session_id: id, canceled: false });
      expect((await query({ query: '/status' })).body).toMatchObject({ status: 'terminated' });
      expect((await query({})).status).toBe(400);
    });

    it('puts the skill into the context and attachments beside it', async () => {
      await query({ query: 'hi', skill: 'deploy', skill_args: 'prod', attachments: [{ id: 'a' }] });
      expect(JSON.parse(String(lastRequest('acceptRun')['contextJson']))).toEqual({
        skill: 'deploy',
        skill_args: 'prod',
      });
      expect(lastRequest('acceptRun')['attachmentsJson']).toBe('[{"id":"a"}]');
    });

    it.each([
      ['models_not_ready', 'UNAVAILABLE', 503, { error: { code: 503, reason: 'm', retryable: true } }],
      ['cwd_forbidden', 'PERMISSION_DENIED', 403, { error: { code: 403, reason: 'm', retryable: false } }],
      ['cwd_invalid', 'INVALID_ARGUMENT', 400, { error: { code: 400, reason: 'm', retryable: false } }],
      ['unknown_project', 'INVALID_ARGUMENT', 400, { message: 'm' }],
      ['idempotency_key_reused', 'ALREADY_EXISTS', 409, { message: 'm' }],
    ] as const)('answers %s in its own shape', async (reason, code, status, body) => {
      harness.session.failures.set('acceptRun', errorOf(code, reason, 'm'));
      const answer = await query({ query: 'hi' });
      expect([answer.status, answer.body, answer.headers.get('x-margay-reason')]).toEqual([status, body, reason]);
    });

    it('lists the candidates of an ambiguous project', async () => {
      const details = { candidates: ['a/b', 'c/b'] };
      harness.session.failures.set(
        'acceptRun',
        errorOf('ALREADY_EXISTS', 'ambiguous_project', 'b is ambiguous', { details }),
      );
      const { status, body } = await query({ query: 'hi' });
      expect([status, body]).toEqual([409, { message: 'b is ambiguous', candidates: ['a/b', 'c/b'] }]);
    });

    it('answers a busy or absent session service with an extended envelope', async () => {
      const busy = new UnavailableError('session_busy', 'busy', { retryAfterMs: 1_500 });
      harness.session.failures.set('acceptRun', busy);
      const { status, body, headers } = await query({ query: 'hi' }, { 'X-Request-Id': 'r-1' });
      expect(status).toBe(503);
      expect(headers.get('retry-after')).toBe('2');
      const error = { code: 'session_busy', status: 503, reason: 'busy', retryable: true, request_id: 'r-1' };
      expect(body).toEqual({ error, message: 'busy' });
    });

    it('tells nothing of faults of its own but the request id', async () => {
      harness.session.failures.set('acceptRun', errorOf('INTERNAL', 'internal', 'secret detail'));
      const { status, body } = await query({ query: 'hi' }, { 'X-Request-Id': 'r-2' });
      expect(status).toBe(500);
      expect(body).toEqual({ message: 'an internal error happened; the log has it under request r-2' });
      harness.session.failures.set('acceptRun', errorOf('UNAUTHENTICATED', 'principal_invalid', 'not validly signed'));
      expect((await query({ query: 'hi' })).status).toBe(500);
    });
  });

  describe('capabilities and surface', () => {
    it('reads both spellings, trims, and leaves out what only the server grants', async () => {
      for (const name of ['X-Mewbo-Capabilities', 'X-Margay-Capabilities']) {
        await harness.post(
          '/api/sessions',
          {},
          { headers: { [name]: ' generative_ui,, ask_user , wiki,ask_user', 'X-Mewbo-Surface': 'console' } },
        );
        expect(lastRequest('createSession')).toMatchObject({
          capabilities: ['generative_ui', 'ask_user'],
          hasCapabilities: true,
          surface: 'console',
        });
      }
    });

    it('lets the header beat the body, and an absent header keep the grant', async () => {
      const context = { client_capabilities: ['speech_playback'] };
      await query({ query: 'hi', context }, { 'X-Mewbo-Capabilities': '' });
      expect(lastRequest('acceptRun')).toMatchObject({ hasCapabilities: true, capabilities: [], contextJson: '{}' });
      await query({ query: '/terminate' });
      await query({ query: 'hi', context });
      expect(lastRequest('acceptRun')).toMatchObject({ hasCapabilities: false, contextJson: JSON.stringify(context) });
    });
  });

  describe('idempotency keys', () => {
    const keyed = { 'Idempotency-Key': 'once-1' };

    it('answer a repeat with the first answer', async () => {
      const first = await query({ query: 'hi' }, keyed);
      expect(first.headers.get('idempotency-replayed')).toBeNull();
      const repeat = await query({ query: 'hi' }, keyed);
      expect([repeat.status, repeat.body]).toEqual([first.status, first.body]);
      expect(repeat.headers.get('idempotency-replayed')).toBe('true');
    });

    it('refuse another body', async () => {
      await query({ query: 'hi' }, keyed);
      const { status, headers } = await query({ query: 'other' }, keyed);
      expect([status, headers.get('x-margay-reason')]).toEqual([409, 'idempotency_key_reused']);
    });

    it('cover creation and messages', async () => {
      const create = () => harness.post('/api/sessions', {}, { headers: keyed });
      expect((await create()).body).toEqual((await create()).body);
      const send = () => harness.post(`/api/sessions/${id}/message`, { text: 'hi' }, { headers: keyed });
      const [first, repeat] = [await send(), await send()];
      expect([repeat.status, repeat.body]).toEqual([first.status, first.body]);
      expect(repeat.headers.get('idempotency-replayed')).toBe('true');
    });

    it.each(['x'.repeat(129), 'a b', 'ä'])('must be visible ASCII of at most 128 characters: %s', async (key) => {
      const { status, body } = await query({ query: 'hi' }, { 'Idempotency-Key': key });
      expect(status).toBe(400);
      expect(body).toEqual({ message: "Invalid header: 'Idempotency-Key' must be 1 to 128 visible ASCII characters" });
    });
  });

  describe('message, interrupt, terminate', () => {
    it('starts a run when idle and steers one when active', async () => {
      const started = await harness.post(`/api/sessions/${id}/message`, { text: 'hi' });
      expect([started.status, started.body]).toEqual([200, { session_id: id, enqueued: true, run_id: `${id}:r1` }]);
      const steered = await harness.post(`/api/sessions/${id}/message`, { text: 'more' });
      expect([steered.status, steered.body]).toEqual([202, { session_id: id, enqueued: true }]);
    });

    it('demands a text', async () => {
      const { status, body } = await harness.post(`/api/sessions/${id}/message`, {});
      expect([status, body]).toEqual([400, { message: "'text' is required" }]);
    });

    it('interrupts an active run with 202 and an idle session with 200', async () => {
      const interrupt = () => harness.post(`/api/sessions/${id}/interrupt`);
      const idle = await interrupt();
      expect([idle.status, idle.body]).toEqual([200, { session_id: id, interrupted: false }]);
      await query({ query: 'hi' });
      const active = await interrupt();
      expect([active.status, active.body]).toEqual([202, { session_id: id, interrupted: true }]);
    });

    it('terminates for ever, repeating the first answer, with the exact 410 afterwards', async () => {
      const terminate = () => harness.post(`/api/sessions/${id}/terminate`);
      const first = await terminate();
      expect(first.status).toBe(200);
      expect(first.body).toEqual({
        session_id: id,
        status: 'terminated',
        terminated_at: expect.stringMatching(/\.\d{6}\+00:00$/),
        cancelled_triggers: 2,
      });
      expect((await terminate()).text).toBe(first.text);
      const attempts = [
        await query({ query: 'hi' }),
        await harness.post(`/api/sessions/${id}/message`, { text: 'hi' }),
        await harness.post(`/api/sessions/${id}/interrupt`),
        await harness.post(`/api/sessions/${id}/recover`, { action: 'retry' }),
        await harness.post(`/api/sessions/${id}/fork`),
        await harness.post(`/api/sessions/${id}/questions/call/answer`, { call_token: CALL_TOKEN, answers: [] }),
      ];
      for (const { status, text, headers } of attempts) {
        expect([status, text]).toEqual([410, JSON.stringify(TERMINATED)]);
        expect(headers.get('x-margay-reason')).toBe('session_terminated');
      }
      expect((await harness.get(`/api/sessions/${id}/events`)).status).toBe(200);
    });
  });

  it('answers unknown, malformed and foreign ids on every route with the same envelope', async () => {
    const foreign = await harness.session.createSession('other-tenant');
    const routes: [string, string, unknown?][] = [
      ['POST', '/query', { query: 'hi' }],
      ['POST', '/query', { query: '/terminate' }],
      ['POST', '/message', { text: 'hi' }],
      ['POST', '/interrupt'],
      ['POST', '/terminate'],
      ['GET', '/events'],
      ['GET', '/stream'],
    ];
    for (const unknown of [foreign, 'f'.repeat(32), 'F'.repeat(32), 'a.b']) {
      for (const [method, path, body] of routes) {
        const answer = await harness.request(method, `/api/sessions/${unknown}${path}`, { body });
        expect([path, answer.status]).toEqual([path, 404]);
        expect(answer.body).toEqual({ error: { code: 404, reason: `session ${unknown} not found`, retryable: false } });
        expect(answer.headers.get('x-margay-reason')).toBe('session_not_found');
      }
      const ours = await harness.get(`/api/sessions/${unknown}`);
      expect([ours.status, ours.body]).toMatchObject([404, { error: { code: 'session_not_found', status: 404 } }]);
    }
  });

  describe('lists and summaries', () => {
    it('echo limit and offset only if a limit was sent', async () => {
      await harness.session.accept(id, 'hi');
      const all = await harness.get('/api/sessions');
      expect(Object.keys(all.body as object)).toEqual(['sessions']);
      const { body } = await harness.get('/api/sessions?limit=1&offset=0');
      expect(body).toMatchObject({
        sessions: [{ session_id: id, title: 'hi', status: 'running' }],
        limit: 1,
        offset: 0,
      });
    });

    it('pass the filters on', async () => {
      await harness.get('/api/sessions?project=a&project=b&pinned=off&include_archived=yes');
      expect(lastRequest('listSessions')).toMatchObject({ projects: ['a', 'b'], pinned: false, includeArchived: true });
      await harness.get('/api/sessions?pinned=1&include_archived=0');
      expect(lastRequest('listSessions')).toMatchObject({ projects: [], pinned: true, includeArchived: false });
      expect((await harness.get('/api/sessions?limit=0')).body).toEqual({ sessions: [], limit: 0, offset: 0 });
      expect((await harness.get('/api/sessions?limit=many')).body).toEqual({
        message: "Invalid input: 'limit' must be a whole number",
      });
    });

    it('show one session', async () => {
      const { status, body } = await harness.get(`/api/sessions/${id}`);
      expect([status, body]).toMatchObject([200, { session_id: id, status: 'idle' }]);
    });
  });

  describe('events', () => {
    const events = (search = '') => harness.get(`/api/sessions/${id}/events${search}`);

    it('come with the state of now', async () => {
      await harness.session.accept(id, 'hi');
      const { status, body } = await events();
      expect(status).toBe(200);
      expect(body).toMatchObject({
        session_id: id,
        running: true,
        status: 'running',
        done_reason: '',
        title: 'hi',
        terminated: false,
      });
      const { events: found } = body as { events: { type: string }[] };
      expect(found.map(({ type }) => type)).toEqual(['session', 'context', 'context', 'run_accepted', 'user']);
    });

    it('begin after `after`, exclusively', async () => {
      await harness.session.accept(id, 'hi');
      const { events: all } = (await events()).body as { events: { ts: string }[] };
      const after = all[2]?.ts ?? '';
      for (const spelling of [encodeURIComponent(after), after.replace('+', ' ')])
        expect((await events(`?after=${spelling}`)).body).toMatchObject({ events: all.slice(3) });
      expect((await events(`?after=${encodeURIComponent(all[4]?.ts ?? '')}`)).body).toMatchObject({ events: [] });
      expect((await events('?after=')).body).toMatchObject({ events: all });
      expect((await events('?after=1720000000.0')).body).toMatchObject({ events: all });
      expect((await events('?after=never')).status).toBe(400);
    });

    it('are cut on request', async () => {
      await harness.session.accept(id, 'hi');
      await harness.session.claim(id);
      const payload = {
        tool_id: 'read_file',
        operation: 'get',
        tool_input: { path: 'x'.repeat(3_000) },
        result: 'y'.repeat(3_000),
        success: true,
        summary: 's',
        agent_id: 'root',
        model: 'scripted/echo',
      };
      await harness.session.step(id, { type: 'tool_result', payload });
      const { events: found } = (await events('?truncate=1')).body as {
        events: { payload: Record<string, unknown> }[];
      };
      const cut = found.at(-1)?.payload;
      expect(cut).toMatchObject({
        result: 'y'.repeat(2_000),
        result_truncated: true,
        tool_input_truncated: true,
        success: true,
      });
      expect(cut?.['tool_input']).toBe(JSON.stringify(payload.tool_input).slice(0, 2_000));
      expect((await events('?truncate=no')).text).toContain('y'.repeat(3_000));
    });
  });

  describe('blobs', () => {
    const text = Array.from({ length: 500 }, (_, n) => `line ${n}\n`).join('');
    const read = (blobId: string, range?: string) =>
      harness.get(`/api/sessions/${id}/blobs/${blobId}`, { headers: range === undefined ? {} : { Range: range } });

    it('are served whole and in ranges', async () => {
      const blobId = await harness.session.blobs.put('default', Buffer.from(text));
      const whole = await read(blobId);
      expect([whole.status, whole.text, whole.headers.get('accept-ranges')]).toEqual([200, text, 'bytes']);
      const cases: [string, string, string][] = [
        ['bytes=0-9', text.slice(0, 10), `bytes 0-9/${text.length}`],
        ['bytes=100-', text.slice(100), `bytes 100-${text.length - 1}/${text.length}`],
        ['bytes=-5', text.slice(-5), `bytes ${text.length - 5}-${text.length - 1}/${text.length}`],
        [
          `bytes=${text.length - 2}-99999999`,
          text.slice(-2),
          `bytes ${text.length - 2}-${text.length - 1}/${text.length}`,
        ],
      ];
      for (const [range, part, described] of cases) {
        const answer = await read(blobId, range);
        expect([answer.status, answer.text, answer.headers.get('content-range')]).toEqual([206, part, described]);
      }
      expect((await read(blobId, 'lines=1-2')).status).toBe(200);
    });

    it('refuse a range outside with 416', async () => {
      const blobId = await harness.session.blobs.put('default', Buffer.from(text));
      for (const range of [`bytes=${text.length}-`, 'bytes=-0']) {
        const { status, headers, body } = await read(blobId, range);
        expect([status, headers.get('content-range')]).toEqual([416, `bytes */${text.length}`]);
        expect(body).toMatchObject({ error: { code: 'range_not_satisfiable', status: 416 } });
      }
    });

    it('answer 404 for an unknown one', async () => {
      for (const blobId of ['0'.repeat(64), 'x']) {
        const { status, body } = await read(blobId);
        expect([status, body]).toMatchObject([404, { error: { code: 'blob_not_found' } }]);
      }
    });
  });

  it('lets the platform operator act in the tenant it names', async () => {
    const foreign = await harness.session.createSession('acme');
    const headers = { 'X-Margay-Tenant': 'acme' };
    expect((await harness.get(`/api/sessions/${foreign}`, { key: MASTER_TOKEN, headers })).status).toBe(200);
    expect((await harness.get(`/api/sessions/${foreign}`, { key: MASTER_TOKEN })).status).toBe(404);
    expect((await harness.get(`/api/sessions/${id}`, { key: MASTER_TOKEN })).status).toBe(200);
  });
});

import { GatewayHarness } from '../spec/gateway-harness';

describe('the spec and the project of a session', () => {
  const harness = new GatewayHarness();

  beforeAll(() => harness.start());
  afterAll(() => harness.stop());

  const put = (sessionId: string, body: unknown, headers = {}) =>
    harness.request('PUT', `/api/sessions/${sessionId}/project`, { body, headers });

  it('are told, and changed with the same answer', async () => {
    const sessionId = await harness.session.createSession();
    const before = await harness.get(`/api/sessions/${sessionId}/spec`);
    expect([before.status, before.body]).toEqual([
      200,
      expect.objectContaining({
        session_id: sessionId,
        source: 'spec',
        spec: expect.objectContaining({ project: null }),
      }),
    ]);
    const { status, body } = await put(sessionId, { project: 'shop' });
    expect([status, body]).toEqual([
      200,
      expect.objectContaining({ session_id: sessionId, spec: expect.objectContaining({ project: 'shop' }) }),
    ]);
    expect((await harness.get(`/api/sessions/${sessionId}/spec`)).body).toEqual(body);
    const { events } = (await harness.get(`/api/sessions/${sessionId}/events`)).body as { events: object[] };
    expect(events.at(-1)).toMatchObject({ type: 'context', payload: { project: 'shop' } });
  });

  it.each([[{}], [{ project: 7 }], [{ project: 'shop', cwd: '/' }], [{ projects: 'shop' }], [{ project: 'nope' }]])(
    'refuse %j with 400 as an envelope',
    async (sent) => {
      const { status, body } = await put(await harness.session.createSession(), sent);
      expect([status, body]).toEqual([400, { error: { code: 400, reason: expect.any(String), retryable: false } }]);
    },
  );

  it('answer 404 as an envelope for unknown sessions', async () => {
    const unknown = { status: 404, body: { error: { code: 404, reason: expect.stringContaining('not found') } } };
    for (const id of ['f'.repeat(32), 'x']) {
      expect(await harness.get(`/api/sessions/${id}/spec`)).toMatchObject(unknown);
      expect(await put(id, { project: 'shop' })).toMatchObject(unknown);
    }
  });

  it('name candidates where a name means more than one project', async () => {
    const { status, body } = await put(await harness.session.createSession(), { project: 'tools' });
    expect([status, body]).toEqual([
      409,
      { message: "'tools' means more than one project", candidates: ['a/tools', 'b/tools'] },
    ]);
  });

  it('can be read but not changed once the session is over', async () => {
    const sessionId = await harness.session.createSession();
    await harness.post(`/api/sessions/${sessionId}/terminate`, {});
    expect(await put(sessionId, { project: 'shop' })).toMatchObject({
      status: 410,
      body: { error: { code: 'session_terminated' } },
    });
    expect((await harness.get(`/api/sessions/${sessionId}/spec`)).status).toBe(200);
  });

  it('are changed once for each Idempotency-Key', async () => {
    const sessionId = await harness.session.createSession();
    const headers = { 'idempotency-key': 'k' };
    expect((await put(sessionId, { project: 'shop' }, headers)).headers.get('idempotency-replayed')).toBeNull();
    expect((await put(sessionId, { project: 'shop' }, headers)).headers.get('idempotency-replayed')).toBe('true');
  });
});

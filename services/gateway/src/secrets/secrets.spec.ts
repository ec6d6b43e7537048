import { GatewayHarness } from '../spec/gateway-harness';

describe('secrets', () => {
  const harness = new GatewayHarness();

  beforeAll(() => harness.start());
  afterAll(() => harness.stop());

  const body = { value: 'canary-31f0', uses: ['egress'], hosts: ['a.example'] };
  const put = (name: string, sent: object = body, headers: Record<string, string> = {}, query = '') =>
    harness.request('PUT', `/api/secrets/${name}${query}`, { body: sent, headers });

  it('are created with 201, replaced with 200, and shown without their value', async () => {
    const made = await put('api');
    expect([made.status, made.headers.get('etag')]).toEqual([201, '"1"']);
    expect(made.body).toEqual({
      ...{ name: 'api', scope: 'tenant', kind: 'opaque', uses: ['egress'], hosts: ['a.example'], git: null },
      ...{ rev: 1, fingerprint: '0123abcd', expires_at: null, updated_by: 'user:ada', last_used_at: null },
      updated_at: '1970-01-01T00:00:00.000000+00:00',
    });
    expect(await put('api')).toMatchObject({ status: 200, body: { rev: 2 } });
    const { body: listed } = await harness.get('/api/secrets');
    expect(listed).toEqual({ secrets: [expect.objectContaining({ name: 'api', rev: 2 })] });
    expect(JSON.stringify([made.body, listed, harness.logLines])).not.toContain('canary');
    expect(await harness.request('DELETE', '/api/secrets/api')).toMatchObject({ status: 204, text: '' });
    expect(await harness.request('DELETE', '/api/secrets/api')).toMatchObject({
      status: 404,
      body: { error: { code: 'secret_not_found' } },
    });
  });

  it('have names with an encoded slash, and git accounts', async () => {
    const git = { host: 'git.example', path_prefix: 'team' };
    const sent = { value: 't', kind: 'git', git, expires_at: '2030-01-01T00:00:00Z' };
    const made = await put('git%2Fteam', sent, {}, '?scope=personal');
    expect(made.body).toMatchObject({
      ...{ name: 'git/team', scope: 'personal', kind: 'git', git: { ...git, username: '' } },
      expires_at: '2030-01-01T00:00:00.000000+00:00',
    });
  });

  it('are written at one revision only where the request says so', async () => {
    expect(await put('rev', body, { 'If-None-Match': '*' })).toMatchObject({ status: 201 });
    expect(await put('rev', body, { 'If-None-Match': '*' })).toMatchObject({ status: 412 });
    expect(await put('rev', body, { 'If-Match': '"1"' })).toMatchObject({ status: 200 });
    expect(await put('rev', body, { 'If-Match': '"1"' })).toMatchObject({
      status: 412,
      body: { error: { code: 'rev_moved' } },
    });
    expect(await put('rev', body, { 'If-Match': '*' })).toMatchObject({ status: 200 });
    expect(await put('rev', body, { 'If-Match': 'W/"3"' })).toMatchObject({ status: 200 });
    expect(await put('none', body, { 'If-Match': '*' })).toMatchObject({ status: 412 });
    for (const headers of [{ 'If-Match': '3' }, { 'If-None-Match': '"1"' }, { 'If-None-Match': '*', 'If-Match': '*' }])
      expect(await put('rev', body, headers as Record<string, string>)).toMatchObject({ status: 422 });
  });

  it.each<[object | string]>([
    [{}],
    [{ ...body, value: 7 }],
    [{ ...body, val: 'canary-31f0' }],
    [{ ...body, kind: 'ssh' }],
    [{ ...body, expires_at: 'tomorrow' }],
    ['{"value": "canary-31f0", }'],
  ])('are refused without quoting anything: %j', async (sent) => {
    const asJson = typeof sent === 'string' ? { rawBody: sent } : { body: sent };
    const { status, text } = await harness.request('PUT', '/api/secrets/bad', asJson);
    expect([400, 422]).toContain(status);
    expect(text + harness.logLines.join()).not.toContain('canary');
    expect((await harness.get('/api/secrets?scope=all')).status).toBe(422);
  });

  it('need another scope for the tenant’s than for one’s own', async () => {
    const member = harness.session.addKey({ principal: 'user:bob', role: 'member' }).text;
    const asked = (query: string, key: string) => harness.get(`/api/secrets${query}`, { key });
    expect(await asked('?scope=personal', member)).toMatchObject({ status: 200 });
    for (const query of ['', '?scope=tenant', '?scope=personal&scope=tenant', '?SCOPE=personal'])
      expect([query, (await asked(query, member)).status]).toEqual([query, 403]);
    expect((await asked('', member)).body).toMatchObject({ error: { details: { scope: 'secrets.manage' } } });
    const viewer = harness.session.addKey({ principal: 'user:eve', role: 'viewer' }).text;
    expect((await asked('?scope=personal', viewer)).body).toMatchObject({ error: { details: { scope: 'personal.manage' } } }); // prettier-ignore
    const narrow = harness.session.addKey({ scopes: ['secrets.manage'], allScopes: false }).text;
    expect([(await asked('', narrow)).status, (await asked('?scope=personal', narrow)).status]).toEqual([200, 403]);
  });
});

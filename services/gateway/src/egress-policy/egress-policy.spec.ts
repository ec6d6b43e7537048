import { GatewayHarness } from '../spec/gateway-harness';

describe('the egress policy', () => {
  const harness = new GatewayHarness();

  beforeAll(() => harness.start());
  afterAll(() => harness.stop());
  beforeEach(() => (harness.egressPolicy.stored = undefined));

  const rule = { id: 'git', hosts: ['Git.Example.com'] };
  const put = (body: object, headers: Record<string, string> = {}, key?: string) =>
    harness.request('PUT', '/api/egress-policy', { body, headers, ...(key !== undefined && { key }) });

  it('is created with 201, replaced with 200, and read as it can be written again', async () => {
    expect(await harness.get('/api/egress-policy')).toMatchObject({
      status: 404,
      body: { error: { code: 'egress_policy_not_found' } },
    });
    const made = await put({ rules: [rule] });
    expect([made.status, made.headers.get('etag')]).toEqual([201, '"1"']);
    expect(made.body).toMatchObject({ mode: 'allowlist', rules: [{ hosts: ['git.example.com'], ports: [443] }] });
    const read = await harness.get('/api/egress-policy');
    expect([read.status, read.headers.get('etag')]).toEqual([200, '"1"']);
    expect(await put(read.body as object, { 'If-Match': '"1"' })).toMatchObject({ status: 200, body: read.body });
    expect(await put({}, { 'If-Match': '"1"' })).toMatchObject({ status: 412, body: { error: { code: 'rev_moved' } } });
    expect(await put({}, { 'If-None-Match': '*' })).toMatchObject({ status: 412 });
  });

  it.each<[object, string]>([
    [{ mode: 'all' }, 'mode'],
    [{ rules: [{ ...rule, hosts: ['10.0.0.1'] }] }, 'rules.0.hosts.0'],
    [
      { rules: [{ ...rule, intercept: true, inject: { credential: 'a b', as: 'basic' } }] },
      'rules.0.inject.credential',
    ],
    [{ rules: [{ ...rule, methods: ['GET'] }] }, 'rules.0.intercept'],
    [{ rules: [rule, rule] }, 'rules'],
  ])('is refused with the name of the faulty key: %j', async (policy, key) => {
    const { status, body } = await put(policy);
    const { error } = body as { error: { code: string; details: { errors: { loc: string[] }[] } } };
    expect([status, error.code, error.details.errors[0]?.loc.join('.')]).toEqual([422, 'validation', key]);
  });

  it('is no wider than the operator allows', async () => {
    expect(await put({ mode: 'public' })).toMatchObject({ status: 403, body: { error: { code: 'setting_locked' } } });
  });

  it('is read by members and written by admins', async () => {
    const member = harness.session.addKey({ principal: 'user:bob', role: 'member' }).text;
    await put({});
    expect(await harness.get('/api/egress-policy', { key: member })).toMatchObject({ status: 200 });
    expect(await put({}, {}, member)).toMatchObject({ status: 403 });
    const viewer = harness.session.addKey({ principal: 'user:eve', role: 'viewer' }).text;
    expect(await harness.get('/api/egress-policy', { key: viewer })).toMatchObject({ status: 403 });
  });
});

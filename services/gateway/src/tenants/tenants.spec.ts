import { GatewayHarness, MASTER_TOKEN } from '../spec/gateway-harness';

describe('a tenant', () => {
  const harness = new GatewayHarness();

  beforeAll(() => harness.start());
  afterAll(() => harness.stop());

  const path = '/api/tenants/default';
  const patch = (body: object, key = MASTER_TOKEN) => harness.request('PATCH', path, { body, key });

  it('is read by its people and changed in part by the platform operator alone', async () => {
    expect(await harness.get(path)).toMatchObject({ status: 200, body: { id: 'default', sandbox_class: null } });
    const change = { sandbox_class: 'dense', ceilings: { allowed_classes: ['dense'] } };
    expect(await patch(change)).toMatchObject({ status: 200, body: change });
    expect(await patch({ ceilings: { concurrent_runs: 3 } })).toMatchObject({
      status: 200,
      body: { sandbox_class: 'dense', ceilings: { allowed_classes: ['dense'], concurrent_runs: 3 } },
    });
    const refused = { status: 403, body: { error: { details: { scope: 'platform.admin' } } } };
    expect(await patch(change, harness.key.text)).toMatchObject(refused);
  });

  it.each<[object, string]>([
    [{ sandbox_class: 'no class' }, 'sandbox_class'],
    [{ ceilings: { allowed_classes: 'dense' } }, 'ceilings.allowed_classes'],
    [{ weight: 0 }, 'weight'],
    [{ allowed_classes: [] }, ''],
  ])('is not changed to %j', async (change, key) => {
    const { status, body } = await patch(change);
    const { error } = body as { error: { code: string; details: { errors: { loc: string[] }[] } } };
    expect([status, error.code, error.details.errors[0]?.loc.join('.')]).toEqual([422, 'validation', key]);
  });

  it('that does not exist is not found', async () => {
    expect(await harness.get('/api/tenants/other')).toMatchObject({
      status: 404,
      body: { error: { code: 'tenant_not_found' } },
    });
  });
});

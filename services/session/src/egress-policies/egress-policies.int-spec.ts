import type { Principal, Role } from '@margay/contracts';
import { createLogger } from '@margay/platform';
import { RealStore } from '../spec/real-store';
import { EgressPoliciesService } from './egress-policies.service';
import { EgressPolicyRepository } from './egress-policy.repository';

const real = new RealStore();
const lines: string[] = [];
const logger = createLogger({ level: 'info', write: (line) => lines.push(line) });
const published: string[] = [];
const bus = { publish: (subject: string, data: unknown) => void published.push(`${subject} ${String(data)}`) };
let policies: EgressPoliciesService;

beforeAll(async () => {
  await real.start();
}, 300_000);
afterAll(() => real.stop());
beforeEach(async () => {
  const rows = real.db.collection('egressPolicies');
  await rows.deleteMany({});
  [published.length, lines.length] = [0, 0];
  policies = new EgressPoliciesService({
    rows: new EgressPolicyRepository(rows as never),
    bus,
    logger,
    maxMode: 'allowlist',
  });
});

function who(role: Role, tenantId = 't1', more: Partial<Principal> = {}): Principal {
  return { v: 1, iss: 'gateway', tenantId, principal: `user:${role}`, role, scopes: null, ...more };
}
/** As JSON, or parsed where a test looks into them. */
const list = (known = '', more: { after?: string; pageBytes?: number } = {}, principal = proxy) =>
  policies.list(principal, { known, after: '', ...more });
const modesOf = ({ policies: some }: { policies?: { tenantId: string; policyJson: string }[] }) =>
  some?.map(({ tenantId, policyJson }) => [tenantId, (JSON.parse(policyJson) as { mode: string }).mode]);
const proxy = who('operator', '_platform', { principal: 'system:egress' });

const rule = { id: 'git', hosts: ['Git.Example.com'] };
const put = (policy: unknown, principal = who('admin'), ifRev?: number) =>
  policies.put(principal, { policyJson: JSON.stringify(policy), ifRev });

describe('the egress policy of a tenant', () => {
  it('is stored with its defaults, told to everybody, and read back', async () => {
    await expect(policies.get(who('member'))).rejects.toMatchObject({ reason: 'egress_policy_not_found' });
    const { row, isCreated } = await put({ rules: [rule] });
    expect([row.rev, isCreated]).toEqual([1, true]);
    expect(row.policy).toMatchObject({
      mode: 'allowlist',
      rules: [{ id: 'git', hosts: ['git.example.com'], ports: [443], intercept: false }],
      limits: { requestsPerSecond: 50 },
    });
    expect(await policies.get(who('member'))).toMatchObject({ rev: 1, updatedBy: 'user:admin' });
    expect(published).toEqual(['margay.config.egress t1']);
    expect(lines.join('')).toContain('egress_policy.update');
  });

  it('is replaced at one revision only where the request says so', async () => {
    await put({ rules: [rule] });
    await expect(put({ mode: 'none' }, who('admin'), 0)).rejects.toMatchObject({ reason: 'rev_moved' });
    await expect(put({ mode: 'none' }, who('admin'), 2)).rejects.toMatchObject({ reason: 'rev_moved' });
    expect(await put({ mode: 'none' }, who('admin'), 1)).toMatchObject({ row: { rev: 2 }, isCreated: false });
    const both = await Promise.all([put({ mode: 'none' }), put({ rules: [rule] })]);
    expect(both.map(({ row }) => row.rev).sort()).toEqual([3, 4]);
  });

  it.each<[object, string]>([
    [{ mode: 'all' }, 'mode'],
    [{ rules: [{ ...rule, hosts: ['10.0.0.1'] }] }, 'rules.0.hosts.0'],
    [{ rules: [{ ...rule, paths: ['/a'] }] }, 'rules.0.intercept'],
    [{ rules: [{ ...rule, intercept: true, inject: { as: 'bearer' } }] }, 'rules.0.inject.as'],
    [{ rules: [{ ...rule, intercept: true, inject: { credential: 'a', as: 'header:Host' } }] }, 'rules.0.inject.as'],
    [{ limits: { connections: 0 } }, 'limits.connections'],
    [{ private: [] }, 'the policy'],
  ])('is refused with the name of the faulty key: %j', async (policy, key) => {
    await expect(put(policy)).rejects.toMatchObject({
      reason: 'validation',
      message: expect.stringMatching(new RegExp(`^${key}: `)) as string,
    });
    await expect(policies.get(who('member'))).rejects.toMatchObject({ reason: 'egress_policy_not_found' });
  });

  it('is small, since the proxy keeps those of all tenants', async () => {
    const hosts = Array.from({ length: 500 }, (_, at) => `a${at}.${'x'.repeat(60)}.${'y'.repeat(60)}.example.com`);
    await expect(put({ rules: [{ ...rule, hosts }] })).rejects.toMatchObject({
      reason: 'validation',
      message: expect.stringContaining('more than 65536') as string,
    });
  });

  it('is told again after a backup was put back, though its revision is the same', async () => {
    await put({ rules: [rule] });
    const rows = real.db.collection('egressPolicies');
    const backup = await rows.find({}).toArray();
    await put({ mode: 'none' });
    const { mark } = await list();
    await rows.deleteMany({});
    await rows.insertMany(backup);
    await new Promise((resolve) => setTimeout(resolve, 5));
    await put({ rules: [rule] });
    expect(modesOf(await list(mark))).toEqual([['t1', 'allowlist']]);
  });

  it('is never wider than the operator allows', async () => {
    await expect(put({ mode: 'public' })).rejects.toMatchObject({
      reason: 'setting_locked',
      details: { setting: 'mode', max: 'allowlist' },
    });
  });

  it('is written by admins, read by members, and of one tenant', async () => {
    await put({ rules: [rule] });
    for (const principal of [who('member'), who('viewer'), who('admin', 't1', { scopes: ['settings.read'] }), proxy])
      await expect(put({ mode: 'none' }, principal)).rejects.toMatchObject({ reason: 'permission_denied' });
    await expect(policies.get(who('viewer'))).rejects.toMatchObject({ reason: 'permission_denied' });
    await expect(policies.get(who('owner', 't2'))).rejects.toMatchObject({ reason: 'egress_policy_not_found' });
  });

  it('goes to the proxy alone, and again only once something has changed', async () => {
    await put({ rules: [rule] });
    await put({ mode: 'none' }, who('admin', 't2'));
    await expect(list('', {}, who('owner'))).rejects.toMatchObject({ reason: 'permission_denied' });
    const first = await list();
    const both = [
      ['t1', 'allowlist'],
      ['t2', 'none'],
    ];
    expect(modesOf(first)).toEqual(both);
    expect(await list(first.mark)).toEqual({ mark: first.mark });
    await put({ mode: 'none' });
    expect(modesOf(await list(first.mark))).toEqual([['t1', 'none'], both[1]]);
  });

  it('goes there page by page, each tenant once, however many there are', async () => {
    const tenants = Array.from({ length: 7 }, (_, at) => `t${at}`);
    for (const tenant of tenants) await put({ mode: 'none' }, who('admin', tenant));
    const bytes = Buffer.byteLength((await list()).policies?.[0]?.policyJson ?? '');
    const pages: string[][] = [];
    let page = await list('', { pageBytes: bytes * 2 });
    for (;;) {
      pages.push(page.policies?.map(({ tenantId }) => tenantId) ?? []);
      if (page.next === undefined) break;
      page = await list('', { pageBytes: bytes * 2, after: page.next });
    }
    expect(pages).toEqual([['t0', 't1'], ['t2', 't3'], ['t4', 't5'], ['t6']]);
    expect(await list('', { pageBytes: 1, after: 't6' })).toEqual({ mark: '', policies: [] });
    expect((await list('', { pageBytes: 0 })).policies).toHaveLength(1);
  });
});

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createLogger } from '@margay/platform';
import { PolicyFile } from './policy-file';
import { PolicySource, type StoredPolicies } from './policy-source';
import { TenantPolicies } from './tenant-policies';

class MemorySource extends PolicySource {
  readonly all = new Map<string, string>();
  isDown = false;
  asked = 0;

  async list(known: string): Promise<StoredPolicies> {
    this.asked += 1;
    if (this.isDown) throw new Error('down');
    const mark = JSON.stringify([...this.all]);
    return mark === known ? { mark } : { mark, policies: new Map(this.all) };
  }
}

const logger = createLogger({ level: 'off' });
const target = { host: 'a.example', port: 443 };
const rules = [{ id: 'a', hosts: ['a.example'] }];
let folder: string;
let source: MemorySource;
let now = 0;

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'margay-policies-'));
  source = new MemorySource();
});
afterEach(() => rmSync(folder, { recursive: true }));

async function open(settings: object): Promise<TenantPolicies> {
  const file = path.join(folder, 'policy.json');
  writeFileSync(file, JSON.stringify(settings));
  return new TenantPolicies(await PolicyFile.open(file, logger), source, logger, () => now);
}

const store = (tenantId: string, policy: object) => source.all.set(tenantId, JSON.stringify(policy));
const caller = (tenantId = 't1') => ({ tenantId, sandboxId: 'b1' });

describe('policies of tenants', () => {
  it('hold instead of the file for those who have stored one', async () => {
    store('t1', { rules });
    const policies = await open({ policy: { rules: [{ id: 'b', hosts: ['b.example'] }] } });
    await policies.refresh();
    expect(policies.judge(target, caller())).toMatchObject({ isAllowed: true, rule: 'a' });
    expect(policies.judge(target, caller('t2'))).toMatchObject({ isAllowed: false });
    expect(policies.judge({ ...target, host: 'b.example' }, caller('t2'))).toMatchObject({ rule: 'b' });
  });

  it('are never wider than what the operator says', async () => {
    store('t1', { mode: 'public', rules, limits: { connections: 9_999, perSandbox: 1 } });
    const limits = { connections: 10, perSandbox: 10 };
    const policies = await open({ policy: { limits }, tenants: { t3: { mode: 'none' } } });
    store('t3', { rules });
    await policies.refresh();
    expect(policies.judge({ ...target, host: 'other.example' }, caller())).toMatchObject({ why: 'no_rule' });
    expect(policies.policyOf('t1').limits).toMatchObject({ connections: 10, perSandbox: 1 });
    expect(policies.judge(target, caller('t3'))).toMatchObject({ why: 'mode_none' });
  });

  it('are told once when they change, and asked for cheaply', async () => {
    const policies = await open({ policy: { rules } });
    const changed = jest.fn();
    policies.onChange(changed);
    await policies.refresh();
    await policies.refresh();
    expect(changed).toHaveBeenCalledTimes(1);
    store('t1', { mode: 'none' });
    await Promise.all([policies.refresh(), policies.refresh()]);
    expect([changed.mock.calls.length, source.asked]).toEqual([2, 3]);
    expect(policies.judge(target, caller())).toMatchObject({ why: 'mode_none' });
    source.all.clear();
    await policies.refresh();
    expect(policies.judge(target, caller())).toMatchObject({ rule: 'a' });
  });

  it('are not read again when that of another tenant changes', async () => {
    store('t1', { rules });
    const policies = await open({});
    await policies.refresh();
    const { rules: before } = policies.policyOf('t1');
    store('t2', { rules });
    await policies.refresh();
    expect(policies.policyOf('t1').rules).toBe(before);
    store('t1', { rules, mode: 'none' });
    await policies.refresh();
    expect(policies.policyOf('t1')).toMatchObject({ rules: [{ id: 'a' }], mode: 'none' });
  });

  it('allow nothing before they are known, and hold while they cannot be asked for', async () => {
    source.isDown = true;
    store('t1', { mode: 'none' });
    const policies = await open({ policy: { rules } });
    await policies.refresh();
    expect(() => policies.judge(target, caller())).toThrow(expect.objectContaining({ reason: 'egress_unavailable' }));
    source.isDown = false;
    await policies.refresh();
    source.isDown = true;
    await policies.refresh();
    expect(policies.judge(target, caller())).toMatchObject({ why: 'mode_none' });
    expect(policies.fault).toContain('session does not say');
  });

  it('are as old as the last answer, changed or not', async () => {
    source.isDown = true;
    const policies = await open({});
    now += 5_000;
    await policies.refresh();
    expect([policies.isKnown, policies.ageMs]).toEqual([false, 5_000]);
    source.isDown = false;
    for (const wait of [0, 3_000]) {
      now += wait;
      await policies.refresh();
      expect([policies.isKnown, policies.ageMs]).toEqual([true, 0]);
    }
    source.isDown = true;
    now += 7_000;
    await policies.refresh();
    expect([policies.isKnown, policies.ageMs]).toEqual([true, 7_000]);
  });

  it('that are not understood allow nothing', async () => {
    store('t1', { mode: 'allowlist', rules: [{ id: 'a', hosts: ['a.example'], fromTheFuture: true }] });
    const policies = await open({ policy: { rules } });
    await policies.refresh();
    expect(policies.judge(target, caller())).toMatchObject({ why: 'mode_none' });
  });
});

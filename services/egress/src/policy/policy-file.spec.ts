import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createLogger } from '@margay/platform';
import { PolicyFile } from './policy-file';

const logger = createLogger({ level: 'off' });
const caller = { tenantId: 't1', sandboxId: 'b1' };
const target = { host: 'a.example', port: 443 };
const policy = { rules: [{ id: 'a', hosts: ['a.example'] }] };
let folder: string;
let file: string;

beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'margay-policy-'));
  file = path.join(folder, 'policy.json');
});
afterEach(() => rm(folder, { recursive: true }));

const write = (settings: unknown) => writeFile(file, JSON.stringify(settings));

describe('the policy file', () => {
  it('gives each tenant its own policy, others the common one, and without one nothing', async () => {
    await write({ policy, tenants: { t2: { mode: 'none' } } });
    const policies = await PolicyFile.open(file, logger);
    expect(policies.judge(target, caller)).toMatchObject({ isAllowed: true, rule: 'a' });
    expect(policies.judge(target, { ...caller, tenantId: 't2' })).toMatchObject({ why: 'mode_none' });
    await write({ tenants: { t2: policy } });
    await policies.refresh();
    for (const tenantId of ['t1', 'constructor', '__proto__'])
      expect(policies.judge(target, { ...caller, tenantId })).toMatchObject({ why: 'mode_none' });
  });

  it('acts on a change and tells it once', async () => {
    await write({});
    const policies = await PolicyFile.open(file, logger);
    const changed = jest.fn();
    policies.onChange(changed);
    await policies.refresh();
    expect(changed).not.toHaveBeenCalled();
    await write({ policy });
    await policies.refresh();
    await policies.refresh();
    expect(changed).toHaveBeenCalledTimes(1);
    expect(policies.judge(target, caller).isAllowed).toBe(true);
  });

  it('keeps what held when a change is faulty, and says where', async () => {
    await write({ policy });
    const policies = await PolicyFile.open(file, logger);
    await write({ policy: { rules: [{ id: 'a', hosts: ['10.1.1.1'] }] } });
    await policies.refresh();
    expect(policies.fault).toMatch(/policy\.rules\.0\.hosts\.0/);
    await writeFile(file, '{');
    await policies.refresh();
    expect(policies.fault).toMatch(/not JSON/);
    expect(policies.judge(target, caller).isAllowed).toBe(true);
    await write({ policy });
    await policies.refresh();
    expect(policies.fault).toBeUndefined();
  });

  it('allows nothing while there is none', async () => {
    const policies = await PolicyFile.open(file, logger);
    expect(policies.fault).toContain('nothing is allowed');
    expect(policies.judge(target, caller).isAllowed).toBe(false);
    await write({ policy });
    await policies.refresh();
    expect(policies.judge(target, caller).isAllowed).toBe(true);
    await rm(file);
    await policies.refresh();
    expect(policies.judge(target, caller).isAllowed).toBe(false);
  });

  it('stops a start that would use a faulty one', async () => {
    await write({ maxMode: 'everything' });
    await expect(PolicyFile.open(file, logger)).rejects.toMatchObject({ reason: 'egress_policy' });
  });
});

import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ANY_REV, secretsPb, type Principal } from '@margay/contracts';
import { createLogger } from '@margay/platform';
import { CommitMasking } from './commit-masking';
import { DataKeys, type DataKeyRows } from './data-keys';
import { KekFile } from './kek-file';
import { resealSweep } from './reseal-sweep';
import { SecretUse } from './secret-use';
import { SecretsService, type SecretRows } from './secrets.service';
import { TenantPrints } from './tenant-prints';
import { Vault } from './vault';
import { MemoryDataKeys, MemorySecrets } from '../spec/memory-secrets';
import { RealStore } from '../spec/real-store';
import { principalOf } from '../spec/session-harness';
import { DataKeyRepository, type TenantDataKeys } from './data-key.repository';
import { ANY_RUN } from '../sessions/run-request';
import { SecretRepository, type SecretRow } from './secret.repository';

const logger = createLogger({ service: 'spec', level: 'off' });
const YEAR_MS = 365 * 86_400_000;

interface SecretsBench {
  /** Another one for each test. */
  tenantId: string;
  rows: SecretRows;
  dataKeys: DataKeyRows;
}

const newKey = () => randomBytes(32).toString('base64');

const real = new RealStore();
const memory = { rows: new MemorySecrets(), dataKeys: new MemoryDataKeys() };

beforeAll(async () => {
  await real.start();
  await new SecretRepository(real.db.collection('secrets')).createIndexes();
}, 300_000);
afterAll(() => real.stop());

function openInMemory(): Promise<SecretsBench> {
  const tenantId = randomBytes(8).toString('hex');
  memory.dataKeys.tenants.clear();
  memory.dataKeys.tenants.set(tenantId, []);
  return Promise.resolve({ tenantId, ...memory });
}

async function openInStore(): Promise<SecretsBench> {
  const tenantId = randomBytes(8).toString('hex');
  const tenants = real.db.collection<TenantDataKeys>('tenants');
  await tenants.deleteMany({});
  await tenants.insertOne({ _id: tenantId });
  const rows = new SecretRepository(real.db.collection('secrets'));
  return { tenantId, rows, dataKeys: new DataKeyRepository(tenants) };
}

describe.each([
  ['in memory', openInMemory],
  ['in the document store', openInStore],
])('a secret, %s', (_where, open) => {
  let folder: string;
  let kek: KekFile;
  let bench: SecretsBench;
  let keys: DataKeys;
  let vault: Vault;
  let secrets: SecretsService;
  let use: SecretUse;
  let now: number;
  let runOf: Record<string, { tenantId: string; run: { id: string; principal: string } | null }>;
  const [k1, k2] = [newKey(), newKey()];
  const published: string[] = [];
  const hitKinds: string[] = [];
  const told: string[] = [];
  const hits = { found: (kind: string) => void hitKinds.push(kind) };
  const heard = createLogger({ write: (line) => void told.push(line) });

  const writeKek = (content: object) => writeFile(join(folder, 'kek.json'), JSON.stringify(content));

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'margay-secrets-'));
    await writeKek({ active: 'k1', keys: { k1 } });
    kek = await KekFile.open(join(folder, 'kek.json'), logger);
    bench = await open();
    now = Date.now();
    runOf = {};
    hitKinds.length = 0;
    told.length = 0;
    published.length = 0;
    const clock = () => now;
    keys = new DataKeys(bench.dataKeys, kek, clock);
    vault = new Vault(keys);
    const bus = { publish: (subject: string, data: string) => void published.push(`${subject} ${data}`) };
    secrets = new SecretsService({ rows: bench.rows, vault, bus, logger, now: clock });
    const headOf = (id: string) => runOf[id] ?? { tenantId: '', run: null };
    const log = { confirmedTip: (id: string) => Promise.resolve({ head: headOf(id) } as never) };
    use = new SecretUse({ rows: bench.rows, vault, log, logger: heard, hits, now: clock });
  });
  afterEach(() => rm(folder, { recursive: true }));

  const owner = () => principalOf(bench.tenantId, 'user:eve', 'owner');
  const ada = () => principalOf(bench.tenantId, 'user:ada', 'member');
  const egress = (): Principal => ({ ...principalOf(bench.tenantId, 'system:egress', 'member'), iss: 'egress' });
  const put = (fields: Partial<secretsPb.PutSecretRequest> = {}, principal = owner()) =>
    secrets.put(
      principal,
      secretsPb.PutSecretRequest.fromPartial({
        scope: 'tenant',
        name: 'api',
        value: 'a-value',
        uses: ['egress'],
        hosts: ['a.example'],
        ...fields,
      }),
    );
  const take = (fields: Partial<secretsPb.UseSecretRequest> = {}, principal = egress()) =>
    use.use(
      principal,
      secretsPb.UseSecretRequest.fromPartial({ purpose: 'egress', name: 'api', host: 'a.example', ...fields }),
    );
  const valueOf = async (fields?: Partial<secretsPb.UseSecretRequest>) => (await take(fields)).value;
  const remove = (fields: Partial<secretsPb.DeleteSecretRequest> = {}, principal = owner()) =>
    secrets.remove(principal, secretsPb.DeleteSecretRequest.fromPartial({ scope: 'tenant', name: 'api', ...fields }));

  it('is written, announced and used, and stands nowhere as a text', async () => {
    const { row, isCreated } = await put();
    expect([isCreated, row.rev]).toEqual([true, 1]);
    expect(published).toEqual([`margay.config.secrets ${bench.tenantId}`]);
    expect(await valueOf()).toBe('a-value');
    const [stored] = await secrets.list(owner(), 'tenant');
    expect(JSON.stringify(stored)).not.toMatch(/a-value|YS12YWx1ZQ/);
  });

  it('has a new revision for each change, and the same fingerprint for the same value', async () => {
    const { row: first } = await put();
    const { row: second, isCreated } = await put({ value: 'another' });
    const { row: third } = await put();
    expect([isCreated, second.rev, third.rev]).toEqual([false, 2, 3]);
    expect(first.fingerprint).toMatch(/^[0-9a-f]{8}$/);
    expect(third.fingerprint).toBe(first.fingerprint);
    expect(second.fingerprint).not.toBe(first.fingerprint);
    expect(await valueOf()).toBe('a-value');
  });

  it('is changed and deleted only at the revision that the writer saw', async () => {
    await put({ ifRev: 0 });
    await expect(put({ ifRev: 0 })).rejects.toMatchObject({ reason: 'rev_moved' });
    await put({ ifRev: 1 });
    await expect(remove({ ifRev: 1 })).rejects.toMatchObject({ reason: 'rev_moved' });
    await put({ ifRev: ANY_REV });
    await remove({ ifRev: 3 });
    await expect(put({ ifRev: ANY_REV })).rejects.toMatchObject({ reason: 'rev_moved' });
    await expect(remove()).rejects.toMatchObject({ reason: 'secret_not_found' });
    await expect(take()).rejects.toMatchObject({ reason: 'secret_not_found' });
    expect(published).toHaveLength(4);
  });

  it('loses no change when several are made at once', async () => {
    await Promise.all([1, 2, 3].map((i) => put({ value: `value ${i}` })));
    const [row] = await secrets.list(owner(), 'tenant');
    expect(row?.rev).toBe(3);
    expect(await valueOf()).toMatch(/^value \d$/);
  });

  it.each<[string, string, Partial<secretsPb.UseSecretRequest>]>([
    ['secret_use_denied', 'another purpose', { purpose: 'git' }],
    ['secret_use_denied', 'another host', { host: 'b.example' }],
    ['secret_use_denied', 'a host below it', { host: 'x.a.example' }],
    ['secret_use_denied', 'no host', { host: '' }],
    ['secret_not_found', 'another name', { name: 'other' }],
  ])('is refused as %s for %s', async (reason, _what, request) => {
    await put();
    await expect(take(request)).rejects.toMatchObject({ reason });
  });

  it('is given to services for their own purposes alone, and never to people or other tenants', async () => {
    await put({ uses: ['egress', 'mail'] });
    await expect(take({ purpose: 'mail' })).rejects.toMatchObject({ reason: 'secret_use_denied' });
    for (const name of [
      'user:eve',
      'platform:operator',
      'svc:ci',
      'system:agent-runner',
      'system:gateway',
      'constructor',
    ])
      await expect(take({}, principalOf(bench.tenantId, name, 'owner'))).rejects.toMatchObject({
        reason: 'secret_use_denied',
      });
    const { tenantId } = await open();
    await expect(take({}, { ...egress(), tenantId })).rejects.toMatchObject({ reason: 'secret_not_found' });
  });

  it('goes to all hosts below a wildcard, whatever their case', async () => {
    await put({ hosts: ['*.A.example'] });
    expect(await valueOf({ host: 'x.y.a.EXAMPLE' })).toBe('a-value');
    await expect(take({ host: 'a.example' })).rejects.toMatchObject({ reason: 'secret_use_denied' });
    await expect(take({ host: 'xa.example' })).rejects.toMatchObject({ reason: 'secret_use_denied' });
  });

  it('is gone when it has expired', async () => {
    await put({ expiresAt: new Date(now + 1_000) });
    expect(await valueOf()).toBe('a-value');
    now += 1_000;
    await expect(take()).rejects.toMatchObject({ reason: 'secret_not_found' });
  });

  it('of a member serves while a run of his is under way in the session, before one of the tenant', async () => {
    await put({ scope: 'personal', value: 'of ada' }, ada());
    await put({ value: 'of all' });
    const { tenantId } = bench;
    runOf = {
      hers: { tenantId, run: { id: 'hers:r1', principal: 'user:ada' } },
      over: { tenantId, run: null },
      foreign: { tenantId: 'elsewhere', run: { id: 'foreign:r1', principal: 'user:ada' } },
      his: { tenantId, run: { id: 'his:r1', principal: 'user:bob' } },
    };
    expect(await take({ sessionId: 'hers' })).toMatchObject({ value: 'of ada', row: { owner: 'user:ada' } });
    for (const sessionId of ['over', 'foreign', 'his', '']) expect(await valueOf({ sessionId })).toBe('of all');
    await remove();
    await expect(take({ sessionId: 'his' })).rejects.toMatchObject({ reason: 'secret_not_found' });
  });

  describe('in a text', () => {
    const bus = { subscribe: () => () => undefined };
    const printsOfTenant = () => new TenantPrints({ rows: bench.rows, vault, bus, logger, now: () => now });

    it('is found by its print, those of members where they are named', async () => {
      await put({ value: 'of-the-tenant' });
      await put({ scope: 'personal', value: 'of-ada-alone' }, ada());
      const { matcher } = await printsOfTenant().of(bench.tenantId);
      const text = 'of-the-tenant of-ada-alone';
      expect(matcher.maskText(text).value).toBe('[secret:api] of-ada-alone');
      expect(matcher.maskText(text, ['user:ada']).value).toBe('[secret:api] [secret:api]');
    });

    it('is found as soon as it was written, once that was said', async () => {
      const prints = printsOfTenant();
      expect((await prints.of(bench.tenantId)).matcher.maskText('a-new-value').value).toBe('a-new-value');
      const { etag } = await prints.of(bench.tenantId);
      expect((await prints.of(bench.tenantId)).etag).toBe(etag);
      await put({ value: 'a-new-value' });
      prints.forget(bench.tenantId);
      const renewed = await prints.of(bench.tenantId);
      expect(renewed.matcher.maskText('a-new-value').value).toBe('[secret:api]');
      expect(renewed.etag).not.toBe(etag);
    });

    it('is opened once, however often another one is written, and again when it is written anew', async () => {
      await put({ value: 'first-value' });
      const opened = jest.spyOn(vault, 'open');
      const prints = printsOfTenant();
      const masked = async () => {
        prints.forget(bench.tenantId);
        return (await prints.of(bench.tenantId)).matcher.maskText('first-value second-value').value;
      };
      const timesOf = (secret: string) => opened.mock.calls.filter(([{ name }]) => name === secret).length;
      for (let n = 0; n < 3; n += 1) {
        await put({ name: 'other', value: `other-value-${n}` });
        expect(await masked()).toBe('[secret:api] second-value');
      }
      expect([timesOf('api'), timesOf('other')]).toEqual([1, 3]);
      await remove();
      await put({ value: 'second-value' });
      expect(await masked()).toBe('first-value [secret:api]');
      opened.mockRestore();
    });

    it('is looked for although another one cannot be opened', async () => {
      await put({ value: 'readable-value' });
      const { row } = await put({ name: 'broken', value: 'broken-value' });
      await bench.rows.replace({ ...row, ct: row.nonce }, row.rev);
      const { matcher } = await printsOfTenant().of(bench.tenantId);
      expect(matcher.maskText('readable-value').value).toBe('[secret:api]');
    });
  });

  describe('that is a canary', () => {
    const bus = { subscribe: () => () => undefined };
    const prints = () => new TenantPrints({ rows: bench.rows, vault, bus, logger });
    const canaryOf = async () => {
      await Promise.all([prints().of(bench.tenantId), prints().of(bench.tenantId)]);
      const rows = (await bench.rows.listAll(bench.tenantId)).filter(({ name }) => name === '_canary');
      expect(rows).toHaveLength(1);
      return vault.open(rows[0] as SecretRow);
    };

    it('exists once for each tenant, is told wherever it turns up, and stands nowhere as a text', async () => {
      const value = await canaryOf();
      const masking = new CommitMasking(prints(), hits, heard);
      const place = { tenantId: bench.tenantId, sessionId: 's1' };
      const run = { ...ANY_RUN, text: `look: ${Buffer.from(value).toString('base64')}` };
      const masked = await masking.mask({ kind: 'accept', commitId: 'c', run }, place);
      expect(masked.run.text).toContain('look: [secret:_canary]');
      expect(hitKinds).toEqual(['canary']);
      expect(JSON.parse(told[0] ?? '')).toMatchObject({
        level: 'error',
        audit: { action: 'secret.canary_hit', tenantId: bench.tenantId, sessionId: 's1', place: 'commit' },
      });
      expect(told.join()).not.toContain(value);
    });

    it('is refused to whoever asks for it, and that is told', async () => {
      await canaryOf();
      await expect(take({ name: '_canary' })).rejects.toMatchObject({ reason: 'secret_use_denied' });
      expect(hitKinds).toEqual(['canary']);
      expect(JSON.parse(told[0] ?? '')).toMatchObject({
        audit: { action: 'secret.canary_hit', principal: 'system:egress', place: 'use' },
      });
    });

    it('is not listed, counted, written or deleted by people', async () => {
      await canaryOf();
      expect(await secrets.list(owner(), '')).toEqual([]);
      expect(await bench.rows.count(bench.tenantId)).toBe(0);
      await expect(put({ name: '_canary' })).rejects.toMatchObject({ reason: 'validation' });
      await expect(remove({ name: '_canary' })).rejects.toMatchObject({ reason: 'validation' });
    });

    it('of a tenant that does not exist is not made', async () => {
      expect((await prints().of('nobody')).matcher.isEmpty).toBe(true);
      expect(await bench.rows.listAll('nobody')).toEqual([]);
    });
  });

  it('of a member is one of few, so that nobody keeps the others from having any', async () => {
    const personal = (name: string, principal = ada()) => put({ scope: 'personal', name }, principal);
    for (let count = 0; count < 50; count += 1) await personal(`s${count}`);
    await expect(personal('more')).rejects.toMatchObject({
      reason: 'limit_exceeded',
      details: { limit: 'personal_secrets', max: 50, used: 50 },
    });
    expect((await personal('s0')).isCreated).toBe(false);
    await put();
    await personal('more', principalOf(bench.tenantId, 'user:bob', 'member'));
  });

  it('is managed by administrators, and by members for themselves', async () => {
    await expect(put({}, ada())).rejects.toMatchObject({ details: { scope: 'secrets.manage' } });
    await expect(remove({}, ada())).rejects.toMatchObject({ reason: 'permission_denied' });
    await expect(secrets.list(ada(), '')).rejects.toMatchObject({ reason: 'permission_denied' });
    const viewer = { ...ada(), role: 'viewer' as const };
    await expect(put({ scope: 'personal' }, viewer)).rejects.toMatchObject({ details: { scope: 'personal.manage' } });
    await expect(put({}, { ...owner(), scopes: ['sessions.*'] })).rejects.toMatchObject({
      reason: 'permission_denied',
    });
    await put({}, { ...owner(), scopes: ['secrets.manage'] });
    await put({ scope: 'personal', name: 'mine' }, ada());
    await expect(put({ scope: 'personal' }, egress())).rejects.toMatchObject({ reason: 'permission_denied' });
    expect((await secrets.list(ada(), 'personal')).map(({ name }) => name)).toEqual(['mine']);
    expect((await secrets.list(owner(), '')).map(({ name }) => name)).toEqual(['api']);
  });

  it.each<[string, Partial<secretsPb.PutSecretRequest>]>([
    ['a bad scope', { scope: 'project' }],
    ['a bad name', { name: 'a/b/c' }],
    ['an empty value', { value: '' }],
    ['a value that is too long', { value: 'x'.repeat(32 * 1024 + 1) }],
    ['a line break where it is sent to hosts', { value: 'a\r\nb: c' }],
    ['no use', { uses: [] }],
    ['an unknown use', { uses: ['everything'] }],
    ['no host where it is sent to hosts', { hosts: [] }],
    ['an address with a port', { hosts: ['a.example:443'] }],
    ['a wildcard in the middle', { hosts: ['a.*.example'] }],
    ['an unknown kind', { kind: 'ssh' }],
    ['a git account of another kind', { git: { host: 'g.example', pathPrefix: '', username: '' } }],
    ['no git account of kind git', { kind: 'git' }],
    ['a time gone by', { expiresAt: new Date(0) }],
    ['a prefix that climbs', { kind: 'git', git: { host: 'g.example', pathPrefix: 'a/../b', username: '' } }],
    ['a user name with a colon', { kind: 'git', git: { host: 'g.example', pathPrefix: '', username: 'a:b' } }],
  ])('is not written with %s, and the refusal quotes no value', async (_what, fields) => {
    const refused = await put({ value: 'canary-7c1f', ...fields }).catch((error: unknown) => error);
    expect(refused).toMatchObject({ reason: 'validation' });
    expect((refused as Error).message).not.toMatch(/canary|a\r|xxx/);
  });

  it('opens at its own place and revision only', async () => {
    const { row: old } = await put({ value: 'old' });
    const { row } = await put({ value: 'new', name: 'other' });
    await put({ value: 'new' });
    await expect(vault.open({ ...row, nonce: old.nonce, ct: old.ct })).rejects.toMatchObject({ reason: 'unreadable_ciphertext' }); // prettier-ignore
    await expect(vault.open({ ...old, rev: 2 })).rejects.toMatchObject({ reason: 'unreadable_ciphertext' });
    expect(await vault.open(old)).toBe('old');
  });

  describe('of kind git', () => {
    const account = (name: string, pathPrefix: string, principal = owner()) =>
      put(
        { name, kind: 'git', value: `token of ${name}`, uses: [], hosts: [], scope: principal.role === 'member' ? 'personal' : 'tenant', git: { host: 'Git.example', pathPrefix, username: 'bot' } }, // prettier-ignore
        principal,
      );
    const found = async (path: string, sessionId = '', host = 'git.example') =>
      (await take({ purpose: 'git', name: '', host, sessionId, git: { host, path } })).row.name;

    it('is found by the longest prefix of whole steps, a member’s own first among equals', async () => {
      await account('all', '');
      await account('team', '/team/');
      await account('site', 'team/site');
      await account('ada', 'team', ada());
      runOf['s'] = { tenantId: bench.tenantId, run: { id: 's:r1', principal: 'user:ada' } };
      expect(await found('/team/site.git')).toBe('team');
      expect(await found('team/site/sub')).toBe('site');
      expect(await found('teams/site')).toBe('all');
      expect(await found('team/x', 's')).toBe('ada');
      expect(await found('team/site', 's')).toBe('site');
      expect((await take({ purpose: 'git', name: 'team', host: 'git.example' })).row.git).toEqual({
        host: 'git.example',
        pathPrefix: 'team',
        username: 'bot',
      });
      await expect(found('team', '', 'other.example')).rejects.toMatchObject({ reason: 'secret_not_found' });
      await expect(take({ purpose: 'git', name: '', git: undefined })).rejects.toMatchObject({ reason: 'validation' });
    });

    it('goes to no host but its own', async () => {
      await account('team', 'team');
      const request = { purpose: 'git', name: '', host: 'b.example', git: { host: 'git.example', path: 'team' } };
      await expect(take(request)).rejects.toMatchObject({ reason: 'secret_use_denied' });
    });
  });

  describe('data keys', () => {
    const stored = async () => (await bench.dataKeys.find(bench.tenantId)) ?? [];

    it('are one for each tenant, made once, and counted', async () => {
      await Promise.all([put({ name: 'a' }), put({ name: 'b' }), put({ name: 'c' })]);
      expect(await stored()).toMatchObject([{ kid: 'k1', uses: 3, retiredAt: null }]);
      expect(JSON.stringify(await stored())).not.toContain(k1);
    });

    it('are replaced after a year, and what they sealed is sealed anew', async () => {
      await put();
      now += YEAR_MS;
      await put({ name: 'newer' });
      expect(await stored()).toMatchObject([{ retiredAt: new Date(now) }, { retiredAt: null }]);
      const sweep = resealSweep({ keys, rows: bench.rows, vault, logger });
      expect(await sweep.sweep()).toBe(1);
      expect(await sweep.sweep()).toBe(0);
      const [first, second] = await secrets.list(owner(), 'tenant');
      expect(first?.dekId).toBe(second?.dekId);
      expect(first?.fingerprint).toBe(second?.fingerprint);
      expect(await valueOf()).toBe('a-value');
    });

    it('are retired although one secret can no longer be read', async () => {
      for (const name of ['a', 'b', 'c']) await put({ name });
      const row = await bench.rows.find(bench.tenantId, `${bench.tenantId}.tenant.b`);
      await bench.rows.replace({ ...row!, ct: Buffer.from('no ciphertext of ours at all').toString('base64') }, 1);
      now += YEAR_MS;
      await put({ name: 'newer' });
      const sweep = resealSweep({ keys, rows: bench.rows, vault, logger });
      expect(await sweep.sweep()).toBe(2);
      for (const name of ['a', 'c']) expect(await valueOf({ name })).toBe('a-value');
      await expect(take({ name: 'b' })).rejects.toMatchObject({ reason: 'unreadable_ciphertext' });
    });

    it('are never made for a tenant that does not exist', async () => {
      await expect(put({}, { ...owner(), tenantId: 'nobody' })).rejects.toMatchObject({ reason: 'tenant_not_found' });
    });
  });

  describe('the key-encryption key', () => {
    it('is replaced while secrets are used, by a command that may be repeated', async () => {
      await put();
      await writeKek({ active: 'k2', keys: { k1, k2 } });
      await kek.refresh();
      expect((await keys.rewrapAll()).rewrapped).toBeGreaterThan(0);
      expect(await keys.rewrapAll()).toEqual({ rewrapped: 0, left: new Map() });
      await writeKek({ active: 'k2', keys: { k2 } });
      const later = await KekFile.open(join(folder, 'kek.json'), logger);
      const fresh = new DataKeys(bench.dataKeys, later);
      await fresh.requireKeks();
      const [row] = await secrets.list(owner(), 'tenant');
      expect(await new Vault(fresh).open(row as never)).toBe('a-value');
    });

    it('stops a start that lacks one that is needed, naming it', async () => {
      await put();
      await writeKek({ active: 'k2', keys: { k2 } });
      const later = await KekFile.open(join(folder, 'kek.json'), logger);
      const refused = new DataKeys(bench.dataKeys, later).requireKeks();
      await expect(refused).rejects.toMatchObject({
        reason: 'kek_missing',
        message: expect.stringContaining('with k1,'),
      });
    });

    it('stops a start with another one under the name of one that is needed', async () => {
      await put();
      await writeKek({ active: 'k1', keys: { k1: newKey() } });
      const made = await KekFile.open(join(folder, 'kek.json'), logger);
      const refused = new DataKeys(bench.dataKeys, made).requireKeks();
      await expect(refused).rejects.toMatchObject({ reason: 'kek_missing', message: expect.stringContaining('with k1,') }); // prettier-ignore
    });
  });
});

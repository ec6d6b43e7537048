import { createHash, randomBytes } from 'node:crypto';
import { createLogger, NatsBus } from '@margay/platform';
import { RealStore, times } from '../spec/real-store';
import { AccessRepository, type KeyRow } from './access.repository';
import { AccessService, FIRST_TENANT } from './access.service';

const real = new RealStore();
const logger = createLogger({ service: 'spec', level: 'off' });
const bus = new NatsBus({ url: 'nats://127.0.0.1:1', name: 'spec', logger });
let access: AccessService;
let other: AccessService;

beforeAll(async () => {
  await real.start();
  const [first, second] = [real.db, real.otherDb].map(
    (db) => new AccessRepository(db.collection('tenants'), db.collection('members'), db.collection('keys')),
  ) as [AccessRepository, AccessRepository];
  await Promise.all([first.createIndexes(), second.createIndexes()]);
  access = new AccessService(first, bus, 'local');
  other = new AccessService(second, bus, 'local');
}, 300_000);
afterAll(() => real.stop());

const hashOf = (text: string): Buffer => createHash('sha256').update(text).digest();
const keys = () => real.db.collection<KeyRow>('keys');
const set = (keyId: string, fields: Partial<KeyRow>) => keys().updateOne({ _id: keyId }, { $set: fields });

describe('an API key', () => {
  let tenantId: string;
  let keyId: string;
  let key: string;

  beforeEach(async () => {
    tenantId = await access.createTenant(`t-${randomBytes(4).toString('hex')}`, '');
    ({ keyId, key } = await access.createKey(tenantId, 'ci', 'member'));
  });

  it('names its tenant, its principal and its role', async () => {
    expect(await access.authenticate(keyId, hashOf(key))).toEqual({
      tenantId,
      principal: 'svc:ci',
      role: 'member',
      scopes: null,
    });
  });

  it('is stored as its hash only, and ends after a year', async () => {
    const row = await keys().findOne({ _id: keyId });
    expect(JSON.stringify(row)).not.toContain(key.slice(-43));
    const days = ((row?.expiresAt?.getTime() ?? 0) - Date.now()) / 86_400_000;
    expect(Math.round(days)).toBe(365);
  });

  it.each<[string, () => Promise<unknown>]>([
    ['expired', () => set(keyId, { expiresAt: new Date(Date.now() - 1) })],
    ['revoked', () => set(keyId, { revokedAt: new Date() })],
    [
      'of a dead tenant',
      () => real.db.collection('tenants').updateOne({ _id: tenantId as never }, { $set: { state: 'deleted' } }),
    ],
    [
      'of a principal that is no member any more',
      () => real.db.collection('members').deleteOne({ _id: `${tenantId}.svc:ci` as never }),
    ],
    ['unknown', () => keys().deleteOne({ _id: keyId })],
    ['sent with another secret', async () => (key = `${key}x`)],
    ['sent with half a hash', async () => undefined],
  ])('is refused in the same words when it is %s', async (what, spoil) => {
    await spoil();
    const secret = what === 'sent with half a hash' ? hashOf(key).subarray(0, 16) : hashOf(key);
    const refused = await access.authenticate(keyId, secret).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: 'UNAUTHENTICATED', reason: 'unauthenticated', message: 'Unauthorized' });
  });

  it('is never made for an account that has one, least of all with other rights', async () => {
    for (const role of ['member', 'admin'])
      await expect(access.createKey(tenantId, 'ci', role)).rejects.toMatchObject({ reason: 'label_taken' });
    await access.createKey(tenantId, 'other', 'admin');
  });

  it('may be made where a crash left the account without one', async () => {
    await keys().deleteOne({ _id: keyId });
    const again = await access.createKey(tenantId, 'ci', 'member');
    expect(await access.authenticate(again.keyId, hashOf(again.key))).toMatchObject({ principal: 'svc:ci' });
  });

  it.each(['operator', 'god', ''])('has no role %p', async (role) => {
    await expect(access.createKey(tenantId, 'x', role)).rejects.toMatchObject({ reason: 'invalid_role' });
  });
});

describe('a tenant', () => {
  it('has a slug of its own, also when two are made at once', async () => {
    const made = await Promise.allSettled(times(10, (i) => (i % 2 ? access : other).createTenant('racing', '')));
    expect(made.filter(({ status }) => status === 'fulfilled')).toHaveLength(1);
    expect(made.find(({ status }) => status === 'rejected')).toMatchObject({ reason: { reason: 'slug_taken' } });
  });

  it.each(['A', 'a', '-a', 'a--b', 'platform', 'x'.repeat(41), 'a b'])('has no slug %p', async (slug) => {
    await expect(access.createTenant(slug, '')).rejects.toMatchObject({ reason: 'invalid_slug' });
  });
});

describe('the first start', () => {
  const key = `mk_local_${'0'.repeat(32)}_${'A'.repeat(43)}`;

  it('makes one tenant and one key that does not expire, however many replicas start at once and again', async () => {
    await Promise.all(times(10, (i) => (i % 2 ? access : other).bootstrap(key)));
    await access.bootstrap(key);
    await access.bootstrap(undefined);
    expect(await real.db.collection('tenants').find({ slug: FIRST_TENANT }).toArray()).toHaveLength(1);
    expect(await keys().find({ tenantId: FIRST_TENANT }).toArray()).toMatchObject([{ expiresAt: null }]);
    expect(await other.authenticate('0'.repeat(32), hashOf(key))).toMatchObject({
      tenantId: FIRST_TENANT,
      principal: 'svc:bootstrap',
      role: 'owner',
    });
  });

  it('gives the key an end where one is set, which no later start moves', async () => {
    const id = '1'.repeat(32);
    const rowOf = async () => (await keys().find({ _id: id }).toArray())[0];
    await access.bootstrap(key.replace('0'.repeat(32), id), 86_400);
    const row = await rowOf();
    const hours = ((row?.expiresAt?.getTime() ?? 0) - Date.now()) / 3_600_000;
    expect(hours).toBeCloseTo(24, 1);
    await other.bootstrap(key.replace('0'.repeat(32), id), 999_999);
    expect(await rowOf()).toEqual(row);
  });

  it('refuses what is no key', async () => {
    await expect(access.bootstrap('secret')).rejects.toMatchObject({ reason: 'invalid_bootstrap_key' });
  });
});

describe('the share of a tenant', () => {
  const repository = () =>
    new AccessRepository(real.db.collection('tenants'), real.db.collection('members'), real.db.collection('keys'));

  it('is a cap of 50 runs for a tenant that the operator makes, and what the installation says for the first one', async () => {
    const made = await access.createTenant(`t-${randomBytes(4).toString('hex')}`, '');
    await access.bootstrap(undefined);
    const shares = await repository().shares([made, FIRST_TENANT, 'nobody']);
    expect(shares.toSorted((a, b) => (b.maxRunning ?? 0) - (a.maxRunning ?? 0))).toEqual([
      { tenantId: made, maxRunning: 50 },
      { tenantId: FIRST_TENANT },
    ]);
  });

  it('changes in part, and is announced', async () => {
    const publish = jest.spyOn(bus, 'publish');
    const made = await access.createTenant(`t-${randomBytes(4).toString('hex')}`, '');
    await access.changeTenant(made, { weight: 30 });
    await access.changeTenant(made, { concurrentRuns: 4 });
    expect(await repository().shares([made])).toEqual([{ tenantId: made, weight: 30, maxRunning: 4 }]);
    expect(publish).toHaveBeenCalledWith('margay.config.tenants', made);
    publish.mockRestore();
  });

  it.each([{ weight: 0 }, { weight: 101 }, { weight: 1.5 }, { concurrentRuns: -1 }])('is never %j', async (change) => {
    await expect(access.changeTenant(FIRST_TENANT, change)).rejects.toMatchObject({ reason: 'invalid_share' });
  });

  it('is of nobody where there is no such tenant', async () => {
    await expect(access.changeTenant('nobody', { weight: 2 })).rejects.toMatchObject({ reason: 'tenant_not_found' });
  });
});

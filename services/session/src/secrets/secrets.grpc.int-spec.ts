import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { secretsPb, subjects } from '@margay/contracts';
import { createLogger, NatsBus, SecretMatcher, systemPrincipal } from '@margay/platform';
import { ScriptedRunner } from '../spec/scripted-runner';
import { principalOf, SessionHarness, type Replica } from '../spec/session-harness';

const CANARY = 'canary-5be2a9';
const logger = createLogger({ service: 'spec', level: 'off' });
const harness = new SessionHarness();
const ada = principalOf('default', 'user:ada', 'member');
const egress = systemPrincipal('egress', 'default');

beforeAll(() => harness.start(), 600_000);
afterAll(() => harness.stop());

const put = (fields: Partial<secretsPb.PutSecretRequest>, principal = harness.owner) =>
  harness.secrets.putSecret(
    secretsPb.PutSecretRequest.fromPartial({
      scope: 'tenant',
      name: 'api',
      value: CANARY,
      uses: ['egress'],
      hosts: ['a.example'],
      ...fields,
    }),
    { principal },
  );
const use = (
  fields: Partial<secretsPb.UseSecretRequest>,
  { egressSecrets }: Pick<Replica, 'egressSecrets'> = harness,
) =>
  egressSecrets.useSecret(
    secretsPb.UseSecretRequest.fromPartial({ purpose: 'egress', name: 'api', host: 'a.example', ...fields }),
    { principal: egress },
  );

describe('secrets between services', () => {
  it('are written through the gateway, announced, and used by the proxy at every replica', async () => {
    const bus = new NatsBus({ url: harness.natsUrl, name: 'spec', logger });
    await bus.start();
    const announced = new Promise<string>((resolve) =>
      bus.subscribe(subjects.config('secrets'), (data) => resolve(data.toString())),
    );
    await bus.flush();
    const { secret, created } = await put({});
    expect(created).toBe(true);
    expect(JSON.stringify(secret)).not.toContain(CANARY);
    expect(await announced).toBe('default');
    await bus.close();
    const other = await harness.addReplica();
    expect(await use({}, other)).toMatchObject({ value: CANARY, scope: 'tenant', name: 'api', rev: 1 });
    await other.stop();
    const { secrets } = await harness.secrets.listSecrets({ scope: 'tenant' }, { principal: harness.owner });
    expect(secrets.map(({ name }) => name)).toEqual(['api']);
  });

  it('are no use to the gateway, whoever it speaks for', async () => {
    await put({});
    const request = secretsPb.UseSecretRequest.fromPartial({ purpose: 'egress', name: 'api', host: 'a.example' });
    for (const principal of [harness.owner, systemPrincipal('gateway', 'default')])
      await expect(harness.secrets.useSecret(request, { principal })).rejects.toMatchObject({
        reason: 'secret_use_denied',
      });
  });

  it('are masked in what is stored, whoever says them', async () => {
    await put({ name: 'said', value: 'said-by-somebody' });
    const sessionId = await harness.createSession();
    await harness.accept(sessionId, `it is said-by-somebody or ${btoa('said-by-somebody')}`);
    const events = JSON.stringify(await harness.events(sessionId));
    expect(events).toContain('it is [secret:said] or [secret:said]');
    expect(events).not.toContain('said-by-somebody');
  });

  it('are told by their prints to those who mask texts, and to nobody else', async () => {
    await put({ name: 'printed', value: 'a-printed-value' });
    const principal = systemPrincipal('gateway', 'default');
    const { etag, key, prints } = await harness.secrets.listSecretPrints({ etag: '' }, { principal });
    const matcher = new SecretMatcher(key, prints);
    expect(matcher.maskText('with a-printed-value').value).toBe('with [secret:printed]');
    expect(await harness.secrets.listSecretPrints({ etag }, { principal })).toMatchObject({ etag, prints: [] });
    const asked = harness.egressSecrets.listSecretPrints({ etag: '' }, { principal: egress });
    await expect(asked).rejects.toMatchObject({ reason: 'permission_denied' });
    const person = harness.secrets.listSecretPrints({ etag: '' }, { principal: harness.owner });
    await expect(person).rejects.toMatchObject({ reason: 'permission_denied' });
  });

  it('of a member are used while a run that he started is under way', async () => {
    await put({ scope: 'personal', name: 'mine' }, ada);
    const sessionId = await harness.createSession(ada);
    const other = await harness.addReplica();
    // A replica that saw the session before must not go by what it remembers of it.
    for (const replica of [harness, other])
      await expect(use({ name: 'mine', sessionId }, replica)).rejects.toMatchObject({ reason: 'secret_not_found' });
    const runner = new ScriptedRunner(harness.runners, 'runner-of-secrets', harness.pool);
    await harness.accept(sessionId, 'go', '', ada);
    await runner.assignOf(sessionId);
    for (const replica of [harness, other])
      expect(await use({ name: 'mine', sessionId }, replica)).toMatchObject({ value: CANARY, scope: 'personal' });
    runner.detach();
    await other.stop();
  });

  it('lie in the store as ciphertext alone, each document under its tenant', async () => {
    await put({});
    const db = await harness.db();
    for (const { name } of await db.listCollections({}, { nameOnly: true }).toArray()) {
      const documents = JSON.stringify(await db.collection(name).find().toArray());
      for (const text of [CANARY, Buffer.from(CANARY).toString('base64').slice(0, 16)]) expect(documents).not.toContain(text); // prettier-ignore
    }
    expect(await db.collection('secrets').countDocuments({ tenantId: { $ne: 'default' } })).toBe(0);
  });

  it('stop a start without the key-encryption key that they need, until they are given up', async () => {
    await put({});
    const folder = await mkdtemp(join(tmpdir(), 'margay-kek-'));
    const file = join(folder, 'kek.json');
    await writeFile(file, JSON.stringify({ active: 'k9', keys: { k9: randomBytes(32).toString('base64') } }));
    await expect(harness.addReplica({ MARGAY_KEK_FILE: file })).rejects.toMatchObject({ reason: 'kek_missing' });
    await expect(harness.addReplica({ MARGAY_KEK_FILE: '' })).rejects.toMatchObject({ reason: 'bad_environment' });
    // As docs/secrets.md says for a file that is lost for good.
    const db = await harness.db();
    await db.collection('tenants').updateMany({}, { $unset: { deks: 1 } });
    await db.collection('secrets').deleteMany({});
    const anew = await harness.addReplica({ MARGAY_KEK_FILE: file });
    await anew.stop();
    await put({});
    expect(await use({})).toMatchObject({ value: CANARY, rev: 1 });
    await rm(folder, { recursive: true });
  });
});

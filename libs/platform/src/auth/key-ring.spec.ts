import { createPublicKey, generateKeyPairSync, type KeyObject } from 'node:crypto';
import { mkdtemp, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Principal, RunGrant, SandboxGrant } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import { CompactSign, decodeProtectedHeader } from 'jose';
import { systemPrincipal } from './entitlements';
import { generateKeys, keyId, readPrivateKey, readTrust } from './key-files';
import { KeyRing } from './key-ring';

const SERVICES = ['gateway', 'session', 'tool-executor', 'channel', 'agent-runner'];
const user: Principal = {
  v: 1,
  iss: 'gateway',
  tenantId: 'acme',
  principal: 'user:ada',
  role: 'member',
  scopes: ['sessions.read'],
  keyId: 'k1',
};
const grant: RunGrant = {
  v: 1,
  tenantId: 'acme',
  sessionId: 's1',
  runId: 's1:r1',
  epoch: 3,
  storeGeneration: 0,
  principal: 'user:ada',
  workspace: { kind: 'path', path: '/srv/project' },
};
const sandboxGrant: SandboxGrant = {
  v: 1,
  sandboxId: 'sb1',
  tenantId: 'acme',
  sessionId: 's1',
  storeGeneration: 0,
  epoch: 3,
  scope: ['execute'],
};

let directory: string;
let now = Date.parse('2031-05-05T10:00:00Z');

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), 'margay-keys-'));
  await generateKeys(directory, SERVICES);
});
afterAll(() => rm(directory, { recursive: true }));

async function ringOf(service: string): Promise<KeyRing> {
  const privateKey = await readPrivateKey(directory, service);
  return new KeyRing({ service, trust: await readTrust(directory), privateKey, now: () => now });
}

async function refusal(attempt: () => Promise<unknown>) {
  try {
    await attempt();
  } catch (error) {
    if (isMargayError(error)) return { code: error.code, reason: error.reason };
    throw error;
  }
  return 'accepted';
}

const UNENTITLED = { code: 'PERMISSION_DENIED', reason: 'issuer_not_entitled' };
const INVALID = { code: 'UNAUTHENTICATED', reason: 'principal_invalid' };

describe('generateKeys', () => {
  it('keeps existing keys, and private keys to the owner', async () => {
    const path = join(directory, 'gateway.key.pem');
    const before = await readFile(path, 'utf8');
    await generateKeys(directory, [...SERVICES, 'mcp-pool']);
    expect(await readFile(path, 'utf8')).toBe(before);
    expect((await stat(path)).mode & 0o077).toBe(0);
    expect(Object.keys(await readTrust(directory))).toEqual([...SERVICES, 'mcp-pool']);
  });

  it('keeps the previous public key while a key is rotated', async () => {
    const rotating = await mkdtemp(join(tmpdir(), 'margay-rotate-'));
    await generateKeys(rotating, ['gateway']);
    const old = await KeyRing.load(rotating, 'gateway');
    await rm(join(rotating, 'gateway.key.pem'));
    await generateKeys(rotating, ['gateway', 'session']);
    const session = await KeyRing.load(rotating, 'session');
    const fresh = await KeyRing.load(rotating, 'gateway');
    for (const ring of [old, fresh]) {
      expect(await session.verifyPrincipal(await ring.signPrincipal(user, 'session'), 'session')).toEqual(user);
    }
    await rm(rotating, { recursive: true });
  });

  it('names the missing file when keys are not there', async () => {
    const attempt = () => KeyRing.load(directory, 'nobody');
    expect(await refusal(attempt)).toEqual({ code: 'FAILED_PRECONDITION', reason: 'keys_missing' });
  });
});

describe('principals', () => {
  it('are verified by another service, without the request id', async () => {
    const token = await (await ringOf('gateway')).signPrincipal({ ...user, requestId: 'r1' }, 'session');
    expect(await (await ringOf('session')).verifyPrincipal(token, 'session')).toEqual(user);
  });

  it('are signed once per half minute, and anew after it', async () => {
    const gateway = await ringOf('gateway');
    const first = await gateway.signPrincipal({ ...user, requestId: 'r1' }, 'session');
    expect(await gateway.signPrincipal({ ...user, requestId: 'r2' }, 'session')).toBe(first);
    expect(await gateway.signPrincipal({ ...user, role: 'viewer' }, 'session')).not.toBe(first);
    now += 31_000;
    expect(await gateway.signPrincipal(user, 'session')).not.toBe(first);
  });

  it('expire after a minute, also when they were verified before', async () => {
    const token = await (await ringOf('gateway')).signPrincipal(user, 'session');
    const session = await ringOf('session');
    await session.verifyPrincipal(token, 'session');
    now += 64_000;
    await session.verifyPrincipal(token, 'session');
    now += 2_000;
    const expired = { code: 'UNAUTHENTICATED', reason: 'principal_expired' };
    expect(await refusal(() => session.verifyPrincipal(token, 'session'))).toEqual(expired);
  });

  it('are good for one audience only, also when they were verified before', async () => {
    const token = await (await ringOf('gateway')).signPrincipal(user, 'session');
    const session = await ringOf('session');
    await session.verifyPrincipal(token, 'session');
    const refused = { code: 'PERMISSION_DENIED', reason: 'principal_audience' };
    expect(await refusal(() => session.verifyPrincipal(token, 'tools'))).toEqual(refused);
  });

  it.each([
    ['rubbish', () => 'rubbish'],
    ['changed claims', changeClaims],
    ['a cut signature', (token: string) => token.slice(0, -8)],
  ])('are refused with %s', async (_, change) => {
    const token = change(await (await ringOf('gateway')).signPrincipal(user, 'session'));
    const session = await ringOf('session');
    expect(await refusal(() => session.verifyPrincipal(token, 'session'))).toEqual(INVALID);
  });

  it('are refused when the signer claims to be another service', async () => {
    const key = await readPrivateKey(directory, 'agent-runner');
    const iat = Math.floor(now / 1000);
    const claims = { ...user, iss: 'gateway', aud: 'session', iat, exp: iat + 60 };
    const token = await new CompactSign(Buffer.from(JSON.stringify(claims)))
      .setProtectedHeader({ alg: 'EdDSA', kid: keyId(key), typ: 'margay-principal' })
      .sign(key);
    const session = await ringOf('session');
    expect(await refusal(() => session.verifyPrincipal(token, 'session'))).toEqual(INVALID);
  });

  it.each([
    ['agent-runner', 'user:ada', 'member'],
    ['agent-runner', 'system:session', 'member'],
    ['agent-runner', 'system:agent-runner', 'operator'],
    ['channel', 'svc:ci', 'member'],
    ['channel', 'platform:operator', 'operator'],
    ['gateway', 'system:session', 'member'],
    ['session', 'user:ada', 'member'],
  ] as const)('are refused when %s asserts %s as %s, even if it signs regardless', async (issuer, principal, role) => {
    const ring = await ringOf(issuer);
    const forged = { ...user, principal, role };
    expect(await refusal(() => ring.signPrincipal(forged, 'session'))).toEqual(UNENTITLED);
    const token = await ring.sign('principal', forged, 60, 'session');
    const receiver = await ringOf('session');
    expect(await refusal(() => receiver.verifyPrincipal(token, 'session'))).toEqual(UNENTITLED);
  });

  it.each([
    ['gateway', 'svc:ci', 'admin'],
    ['gateway', 'platform:operator', 'operator'],
    ['channel', 'svc:channel-mail', 'member'],
    ['session', 'system:janitor', 'member'],
    ['tool-executor', 'system:tool-executor', 'member'],
  ] as const)('are accepted when %s asserts %s as %s', async (issuer, principal, role) => {
    const token = await (await ringOf(issuer)).signPrincipal({ ...user, iss: issuer, principal, role }, 'session');
    expect(await (await ringOf('session')).verifyPrincipal(token, 'session')).toMatchObject({ principal, iss: issuer });
  });

  it('of a service acting for itself pass', async () => {
    const runner = await ringOf('agent-runner');
    const self = systemPrincipal('agent-runner', 'acme');
    const token = await runner.signPrincipal(self, 'session');
    expect(await (await ringOf('session')).verifyPrincipal(token, 'session')).toEqual(self);
  });
});

describe('grants', () => {
  it('of a run pass at session, tools and mcp, and nowhere else', async () => {
    const token = await (await ringOf('session')).signRunGrant(grant);
    const receiver = await ringOf('tool-executor');
    for (const audience of ['session', 'tools', 'mcp']) {
      expect(await receiver.verifyRunGrant(token, audience)).toEqual(grant);
    }
    const refused = { code: 'PERMISSION_DENIED', reason: 'grant_audience' };
    expect(await refusal(() => receiver.verifyRunGrant(token, 'ide'))).toEqual(refused);
  });

  it('of a run are signed by session only', async () => {
    const runner = await ringOf('agent-runner');
    expect(await refusal(() => runner.signRunGrant(grant))).toEqual(UNENTITLED);
  });

  it('of a sandbox open that sandbox only, and expire with half a minute of leeway', async () => {
    const token = await (await ringOf('tool-executor')).signSandboxGrant(sandboxGrant);
    const sandboxd = new KeyRing({ service: 'sandboxd', trust: await readTrust(directory), now: () => now });
    expect(await sandboxd.verifySandboxGrant(token, 'sb1')).toEqual(sandboxGrant);
    const refused = { code: 'PERMISSION_DENIED', reason: 'grant_audience' };
    expect(await refusal(() => sandboxd.verifySandboxGrant(token, 'sb2'))).toEqual(refused);
    now += 89_000;
    await sandboxd.verifySandboxGrant(token, 'sb1');
    now += 2_000;
    const expired = { code: 'UNAUTHENTICATED', reason: 'grant_expired' };
    expect(await refusal(() => sandboxd.verifySandboxGrant(token, 'sb1'))).toEqual(expired);
  });

  it('of one kind never pass as another', async () => {
    const session = await ringOf('session');
    const token = await session.signRunGrant(grant);
    expect(await refusal(() => session.verifySandboxGrant(token, 'session'))).toMatchObject({
      reason: 'grant_invalid',
    });
    expect(await refusal(() => session.verifyPrincipal(token, 'session'))).toEqual(INVALID);
  });

  it('cannot be signed without a private key', async () => {
    const ring = await KeyRing.load(directory, 'session', { verifyOnly: true });
    expect(await refusal(() => ring.signRunGrant(grant))).toEqual({ code: 'INTERNAL', reason: 'no_private_key' });
  });
});

function changeClaims(token: string): string {
  const [header, payload, signature] = token.split('.') as [string, string, string];
  const claims = JSON.parse(Buffer.from(payload, 'base64url').toString()) as Principal;
  const changed = Buffer.from(JSON.stringify({ ...claims, tenantId: 'other' })).toString('base64url');
  return [header, changed, signature].join('.');
}

describe('keys that are replaced while services run', () => {
  let folder: string;
  const write = (file: string, text: string) => writeFile(join(folder, file), text);
  const pemOf = (key: KeyObject) => key.export({ type: 'pkcs8', format: 'pem' }).toString();
  const publicOf = (key: KeyObject) => createPublicKey(key).export({ type: 'spki', format: 'pem' }).toString();
  const kidIn = (token: string) => decodeProtectedHeader(token).kid;

  beforeEach(async () => {
    folder = await mkdtemp(join(tmpdir(), 'margay-reload-'));
    await generateKeys(folder, ['gateway', 'session', 'tool-executor']);
  });
  afterEach(() => rm(folder, { recursive: true }));

  it('are believed as soon as they are trusted, and sign as soon as they are there', async () => {
    const [gateway, session] = [await KeyRing.load(folder, 'gateway'), await KeyRing.load(folder, 'session')];
    const first = await gateway.signPrincipal(user, 'session');
    await session.verifyPrincipal(first, 'session');
    const next = generateKeyPairSync('ed25519').privateKey;
    const trust = await readTrust(folder);
    await write('trust.json', JSON.stringify({ ...trust, gateway: [...(trust['gateway'] ?? []), publicOf(next)] }));
    await write('gateway.key.pem', pemOf(next));
    await gateway.refresh(0);
    const second = await gateway.signPrincipal(user, 'session');
    expect(kidIn(second)).toBe(keyId(next));
    await session.refresh(0);
    expect(await session.verifyPrincipal(second, 'session')).toEqual(user);
    expect(await session.verifyPrincipal(first, 'session')).toEqual(user);
    await write('trust.json', JSON.stringify({ ...trust, gateway: [publicOf(next)] }));
    await session.refresh(0);
    expect(await refusal(() => session.verifyPrincipal(first, 'session'))).toEqual(INVALID);
  });

  it('sign for sandboxes only once the old one is gone', async () => {
    const [oldKey, newKey] = [await readPrivateKey(folder, 'tool-executor'), generateKeyPairSync('ed25519').privateKey];
    const ring = await KeyRing.load(folder, 'tool-executor');
    await write('tool-executor.old.pem', pemOf(oldKey));
    await write('tool-executor.key.pem', pemOf(newKey));
    await ring.refresh(0);
    expect(ring.signingKeyId).toBe(keyId(newKey));
    expect(kidIn(await ring.signSandboxGrant(sandboxGrant))).toBe(keyId(oldKey));
    await write('tool-executor.old.pem', '');
    await ring.refresh(0);
    expect(kidIn(await ring.signSandboxGrant(sandboxGrant))).toBe(keyId(newKey));
  });

  it('that cannot be read change nothing, and are told without their content', async () => {
    const gateway = await KeyRing.load(folder, 'gateway');
    const { signingKeyId } = gateway;
    await write('gateway.key.pem', 'no key at all');
    await gateway.refresh(0);
    expect(gateway.signingKeyId).toBe(signingKeyId);
    expect(gateway.fault).toMatch(/^the files of keys of gateway cannot be used/);
    expect(gateway.fault).not.toContain('no key at all');
    await write('gateway.key.pem', '');
    await gateway.refresh(0);
    expect(kidIn(await gateway.signPrincipal(user, 'session'))).toBe(signingKeyId);
  });
});

import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { isMargayError } from '@margay/errors';
import { CompactSign } from 'jose';
import { GrantVerifier } from './grant-verifier';

const pair = generateKeyPairSync('ed25519');
const other = generateKeyPairSync('ed25519');
const pem = (key: KeyObject): string => key.export({ type: 'spki', format: 'pem' }).toString();
let now = Date.parse('2031-01-01T00:00:00Z');

async function sign(more: object = {}, key = pair.privateKey, typ = 'margay-sandbox-grant'): Promise<string> {
  const claims = {
    v: 1,
    sandboxId: 'sb1',
    tenantId: 't1',
    sessionId: 's1',
    storeGeneration: 0,
    epoch: 1,
    scope: ['execute'],
    iss: 'tool-executor',
    aud: 'sb1',
    exp: now / 1_000 + 60,
    ...more,
  };
  return new CompactSign(Buffer.from(JSON.stringify(claims))).setProtectedHeader({ alg: 'EdDSA', typ }).sign(key);
}

async function outcome(token: string | undefined): Promise<string | undefined> {
  return verifier.verify(token).then(
    (grant) => grant.sessionId,
    (error: unknown) => (isMargayError(error) ? error.reason : String(error)),
  );
}

const verifier = new GrantVerifier({
  sandboxId: 'sb1',
  trust: pem(other.publicKey) + pem(pair.publicKey),
  now: () => now,
});

describe('GrantVerifier', () => {
  it('opens a grant made for this sandbox by any trusted key', async () => {
    expect(await outcome(await sign())).toBe('s1');
    expect(await outcome(await sign({}, other.privateKey))).toBe('s1');
  });

  it('refuses what is missing, forged, of another kind or for another sandbox', async () => {
    const stranger = generateKeyPairSync('ed25519').privateKey;
    expect(await outcome(undefined)).toBe('grant_missing');
    expect(await outcome('rubbish')).toBe('grant_invalid');
    expect(await outcome(await sign({}, stranger))).toBe('grant_invalid');
    expect(await outcome(await sign({}, pair.privateKey, 'margay-run-grant'))).toBe('grant_invalid');
    expect(await outcome(await sign({ aud: 'sb2' }))).toBe('grant_audience');
  });

  it('refuses an expired one after 30 s of leeway, also when it was opened before', async () => {
    const token = await sign();
    expect(await outcome(token)).toBe('s1');
    now += 89_000;
    expect(await outcome(token)).toBe('s1');
    now += 2_000;
    expect(await outcome(token)).toBe('grant_expired');
  });
});

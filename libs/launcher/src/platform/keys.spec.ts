import { createHash, createPrivateKey, createPublicKey, sign, verify } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryFolder } from '../fixtures.testing';
import { ensureBootstrapKey, ensureKekFile, ensureServiceKeys } from './keys';
import { SERVICES } from './services';

describe('keys', () => {
  let folder: Awaited<ReturnType<typeof temporaryFolder>>;

  beforeEach(async () => {
    folder = await temporaryFolder();
  });
  afterEach(() => folder.remove());

  const trust = async (): Promise<Record<string, string[]>> =>
    JSON.parse(await readFile(join(folder.path, 'trust.json'), 'utf8'));

  it('gives every service an Ed25519 key that the trust file verifies', async () => {
    await ensureServiceKeys(folder.path);
    for (const service of SERVICES) {
      const privateKey = createPrivateKey(await readFile(join(folder.path, `${service}.key.pem`)));
      const publicKey = createPublicKey((await trust())[service]?.[0] ?? '');
      expect(publicKey.asymmetricKeyType).toBe('ed25519');
      expect(verify(null, Buffer.from('x'), publicKey, sign(null, Buffer.from('x'), privateKey))).toBe(true);
    }
  });

  it('keeps private keys private and the same over starts', async () => {
    await ensureServiceKeys(folder.path);
    const before = await trust();
    await ensureServiceKeys(folder.path);
    expect(await trust()).toEqual(before);
    expect((await stat(join(folder.path, 'gateway.key.pem'))).mode & 0o777).toBe(0o600);
    const ids = Object.values(before).map(([pem = '']) => createHash('sha256').update(pem).digest('hex'));
    expect(new Set(ids).size).toBe(SERVICES.length);
  });

  it('makes one key-encryption key, which stays', async () => {
    const file = join(folder.path, 'kek.json');
    await ensureKekFile(file);
    const text = await readFile(file, 'utf8');
    await ensureKekFile(file);
    expect(await readFile(file, 'utf8')).toBe(text);
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    const { active, keys } = JSON.parse(text) as { active: string; keys: Record<string, string> };
    expect(Buffer.from(keys[active] ?? '', 'base64')).toHaveLength(32);
  });

  it('makes the first API key once, readable by its owner only', async () => {
    const file = join(folder.path, 'bootstrap.key');
    const key = await ensureBootstrapKey(file);
    expect(key).toMatch(/^mk_local_[0-9a-f]{32}_[A-Za-z0-9_-]{43}$/);
    expect(await ensureBootstrapKey(file)).toBe(key);
    expect(await readFile(file, 'utf8')).toBe(key);
    expect((await stat(file)).mode & 0o777).toBe(0o600);
  });
});

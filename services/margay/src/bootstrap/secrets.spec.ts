import { createPrivateKey, createPublicKey } from 'node:crypto';
import { SERVICE_NAMES } from '../service-names';
import { missingFirstKey, missingKek, missingPassword, missingServiceKeys, type SecretData } from './secrets';

const publicOf = (pem: string) => createPublicKey(pem).export({ type: 'spki', format: 'pem' }).toString();
const trustOf = (data: SecretData) => JSON.parse(data['trust.json'] ?? '{}') as Record<string, string[]>;

describe('keys of the services', () => {
  it('are made for each, Ed25519, and trusted', () => {
    const made = missingServiceKeys({});
    expect(Object.keys(made).sort()).toEqual([...SERVICE_NAMES.map((name) => `${name}.key.pem`), 'trust.json'].sort());
    for (const name of SERVICE_NAMES) {
      const pem = made[`${name}.key.pem`]!;
      expect(createPrivateKey(pem).asymmetricKeyType).toBe('ed25519');
      expect(trustOf(made)[name]).toEqual([publicOf(pem)]);
    }
  });

  it('are nothing more once they are there', () => {
    expect(missingServiceKeys(missingServiceKeys({}))).toEqual({});
  });

  it('stay when others are missing, and so does every key that is trusted', () => {
    const all = missingServiceKeys({});
    const { 'session.key.pem': _lost, ...rest } = all;
    const made = missingServiceKeys(rest);
    expect(Object.keys(made).sort()).toEqual(['session.key.pem', 'trust.json']);
    expect(trustOf(made)).toMatchObject({ gateway: trustOf(all).gateway });
    expect(trustOf(made).session).toEqual([publicOf(made['session.key.pem']!), trustOf(all).session?.[0]]);
  });

  it('are trusted again when only the list is lost', () => {
    const { 'trust.json': lost, ...keys } = missingServiceKeys({});
    const made = missingServiceKeys(keys);
    expect(Object.keys(made)).toEqual(['trust.json']);
    expect(trustOf(made)).toEqual(JSON.parse(lost!));
  });

  it('are not made over a list that can not be read', () => {
    for (const text of ['{', '[]', '{"session": "pem"}'])
      expect(() => missingServiceKeys({ 'trust.json': text })).toThrow(/trust\.json does not list public keys/);
  });
});

describe('single secrets', () => {
  it('are an API key of this cell and a password that needs no escaping', () => {
    expect(missingFirstKey('eu1')({}).key).toMatch(/^mk_eu1_[0-9a-f]{32}_[\w-]{43}$/);
    expect(missingPassword({}).password).toMatch(/^[0-9a-f]{48}$/);
    expect(missingPassword({}).password).not.toBe(missingPassword({}).password);
  });

  it('are a key-encryption key that session can use, another one each time', () => {
    const { active, keys } = JSON.parse(missingKek({})['kek.json'] ?? '') as { active: string; keys: Record<string, string> }; // prettier-ignore
    expect(Buffer.from(keys[active] ?? '', 'base64')).toHaveLength(32);
    expect(missingKek({})).not.toEqual(missingKek({}));
    expect(missingKek({ 'kek.json': '{' })).toEqual({});
  });

  it('stay as they are', () => {
    expect(missingFirstKey('eu1')({ key: 'x' })).toEqual({});
    expect(missingPassword({ password: 'x' })).toEqual({});
  });
});

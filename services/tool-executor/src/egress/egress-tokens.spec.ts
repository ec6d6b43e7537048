import { generateKeyPairSync } from 'node:crypto';
import { KeyRing } from '@margay/platform';
import { EgressTokens } from './egress-tokens';

const ring = (privateKey = generateKeyPairSync('ed25519').privateKey) =>
  new KeyRing({ service: 'tool-executor', trust: {}, privateKey });

describe('tokens for the egress proxy', () => {
  it('are the same in every replica, and belong to one sandbox', async () => {
    const { privateKey } = generateKeyPairSync('ed25519');
    const token = new EgressTokens(ring(privateKey)).tokenOf('b1');
    const other = new EgressTokens(ring(privateKey));
    expect(await other.isTokenOf('b1', token)).toBe(true);
    expect(await other.isTokenOf('b2', token)).toBe(false);
    for (const forged of ['', 'x', `${token}x`, token.slice(1)])
      expect(await other.isTokenOf('b1', forged)).toBe(false);
  });

  it('stay good while the key is replaced, at replicas before and after it', async () => {
    const [oldKey, newKey] = [generateKeyPairSync('ed25519').privateKey, generateKeyPairSync('ed25519').privateKey];
    const rings = [
      new KeyRing({ service: 'tool-executor', trust: {}, privateKey: oldKey, nextKey: newKey }),
      new KeyRing({ service: 'tool-executor', trust: {}, privateKey: newKey, oldKey }),
    ];
    const [before, after] = rings.map((keys) => new EgressTokens(keys)) as [EgressTokens, EgressTokens];
    expect(before.tokenOf('b1')).not.toBe(after.tokenOf('b1'));
    expect(await before.isTokenOf('b1', after.tokenOf('b1'))).toBe(true);
    expect(await after.isTokenOf('b1', before.tokenOf('b1'))).toBe(true);
  });

  it('cannot be made with another key, or without one', async () => {
    expect(await new EgressTokens(ring()).isTokenOf('b1', new EgressTokens(ring()).tokenOf('b1'))).toBe(false);
    const verifier = new KeyRing({ service: 'tool-executor', trust: {} });
    expect(() => new EgressTokens(verifier)).toThrow(/private key/);
  });
});

import { generateKeyPairSync } from 'node:crypto';
import { KeyRing } from '@margay/platform';
import { EgressTokens } from './egress-tokens';

const ring = (privateKey = generateKeyPairSync('ed25519').privateKey) =>
  new KeyRing({ service: 'tool-executor', trust: {}, privateKey });

describe('tokens for the egress proxy', () => {
  it('are the same in every replica, and belong to one sandbox', () => {
    const { privateKey } = generateKeyPairSync('ed25519');
    const token = new EgressTokens(ring(privateKey)).tokenOf('b1');
    const other = new EgressTokens(ring(privateKey));
    expect(other.isTokenOf('b1', token)).toBe(true);
    expect(other.isTokenOf('b2', token)).toBe(false);
    for (const forged of ['', 'x', `${token}x`, token.slice(1)]) expect(other.isTokenOf('b1', forged)).toBe(false);
  });

  it('cannot be made with another key, or without one', () => {
    expect(new EgressTokens(ring()).isTokenOf('b1', new EgressTokens(ring()).tokenOf('b1'))).toBe(false);
    const verifier = new KeyRing({ service: 'tool-executor', trust: {} });
    expect(() => new EgressTokens(verifier)).toThrow(/private key/);
  });
});

import { X509Certificate } from 'node:crypto';
import { certify, newKeyPair } from './certificate';

const FROM = Date.UTC(2026, 0, 1);
const authority = newKeyPair();
const root = { subject: 'margay spec', keys: authority };

function rootUntil(notAfterMs: number): X509Certificate {
  const { subject, keys } = root;
  const use = { kind: 'authority' } as const;
  return new X509Certificate(
    certify({ subject, publicKey: keys.publicKey, issuer: root, notBeforeMs: FROM, notAfterMs, use }),
  );
}

function leaf(names: string[]): X509Certificate {
  const use = { kind: 'server', names } as const;
  const { publicKey } = newKeyPair();
  const notAfterMs = FROM + 86_400_000;
  return new X509Certificate(certify({ subject: 'leaf', publicKey, issuer: root, notBeforeMs: FROM, notAfterMs, use }));
}

describe('certificates', () => {
  it('of an authority vouch for themselves, for as long as they say', () => {
    const certificate = rootUntil(Date.UTC(2061, 5, 1));
    expect(certificate.ca).toBe(true);
    expect(certificate.verify(authority.publicKey)).toBe(true);
    expect(Date.parse(certificate.validFrom)).toBe(FROM);
    expect(Date.parse(certificate.validTo)).toBe(Date.UTC(2061, 5, 1));
  });

  it('of a server name its hosts and are vouched for by the authority', () => {
    const certificate = leaf(['git.example.com', 'www.example.com']);
    expect(certificate.ca).toBe(false);
    expect(certificate.checkIssued(rootUntil(Date.UTC(2040, 0, 1)))).toBe(true);
    expect(certificate.verify(authority.publicKey)).toBe(true);
    expect(certificate.verify(newKeyPair().publicKey)).toBe(false);
    expect(certificate.checkHost('git.example.com')).toBe('git.example.com');
    expect(certificate.checkHost('example.com')).toBeUndefined();
    expect(certificate.keyUsage).toEqual(['1.3.6.1.5.5.7.3.1']);
  });

  it('have numbers of their own, and lengths of every size', () => {
    const [one, two] = [leaf(['a.example']), leaf(['a.example'])];
    expect(one?.serialNumber).not.toBe(two?.serialNumber);
    for (const count of [1, 5, 10, 4_000]) {
      const names = Array.from({ length: count }, (_, index) => `host-${index}.example`);
      expect(leaf(names).checkHost(`host-${count - 1}.example`)).toBe(`host-${count - 1}.example`);
    }
  });
});

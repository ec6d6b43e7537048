import { createPrivateKey, X509Certificate } from 'node:crypto';
import { dueLeaf, missingAuthority } from './certificates';

const DAY_MS = 86_400_000;
const NOW = Date.UTC(2026, 0, 1);
const authority = missingAuthority(NOW)({});
const issuer = new X509Certificate(authority['ca.crt'] ?? '');
const certificateIn = (data: Readonly<Record<string, string>>) => new X509Certificate(data['tls.crt'] ?? '');

describe('the authority of an installation', () => {
  it('is made once, for ten years', () => {
    expect(issuer.ca).toBe(true);
    expect(Math.round((Date.parse(issuer.validTo) - NOW) / DAY_MS)).toBe(3_650);
    expect(missingAuthority(NOW)(authority)).toEqual({});
  });

  it('is not mended where half of it is lost', () => {
    for (const key of ['ca.crt', 'ca.key'] as const)
      expect(() => missingAuthority(NOW)({ [key]: authority[key] ?? '' })).toThrow(/lacks ca.crt or ca.key/);
  });
});

describe('the certificate of a process', () => {
  const services = ['gateway', 'session'];
  const leaf = dueLeaf(authority, services, NOW)({});

  it('is for all services that it hosts, as server and client, for a year', () => {
    const certificate = certificateIn(leaf);
    expect(certificate.verify(issuer.publicKey)).toBe(true);
    expect(certificate.checkIssued(issuer)).toBe(true);
    expect(certificate.checkPrivateKey(createPrivateKey(leaf['tls.key'] ?? ''))).toBe(true);
    expect(certificate.subjectAltName).toBe('DNS:gateway.margay.internal, DNS:session.margay.internal');
    expect(certificate.keyUsage?.toSorted()).toEqual(['1.3.6.1.5.5.7.3.1', '1.3.6.1.5.5.7.3.2']);
    expect(Math.round((Date.parse(certificate.validTo) - NOW) / DAY_MS)).toBe(365);
    expect(leaf['ca.crt']).toBe(authority['ca.crt']);
  });

  it('stays until it is good for less than 60 days', () => {
    expect(dueLeaf(authority, services, NOW + 304 * DAY_MS)(leaf)).toEqual({});
    const renewed = dueLeaf(authority, services, NOW + 306 * DAY_MS)(leaf);
    expect(Date.parse(certificateIn(renewed).validTo)).toBeGreaterThan(NOW + 600 * DAY_MS);
  });

  it('is made anew for other services, another authority, and where it is damaged', () => {
    expect(dueLeaf(authority, ['session'], NOW)(leaf)).toHaveProperty(['tls.crt']);
    expect(dueLeaf(missingAuthority(NOW)({}), services, NOW)(leaf)).toHaveProperty(['tls.crt']);
    for (const [key, text] of [
      ['tls.crt', 'x'],
      ['tls.key', ''],
      ['ca.crt', leaf['tls.crt'] ?? ''],
    ] as const)
      // prettier-ignore
      expect(dueLeaf(authority, services, NOW)({ ...leaf, [key]: text })).toHaveProperty(['tls.key']);
  });

  it('never outlives its authority', () => {
    const late = dueLeaf(authority, services, NOW + 3_600 * DAY_MS)({});
    expect(certificateIn(late).validTo).toBe(issuer.validTo);
  });
});

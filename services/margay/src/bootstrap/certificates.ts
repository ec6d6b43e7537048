import { createPrivateKey, createPublicKey, X509Certificate } from 'node:crypto';
import { FailedPreconditionError } from '@margay/errors';
import { peerName } from '@margay/platform';
import { certify, newKeyPair, type KeyPair } from '@margay/platform/certificates';
import type { Completion, SecretData } from './secrets';

const DAY_MS = 86_400_000;
const AUTHORITY_DAYS = 3_650;
const LEAF_DAYS = 365;
/** Leaves that are good for less are made anew. */
const RENEW_BELOW_DAYS = 60;
/** Clocks of nodes differ. */
const EARLIER_MS = 3_600_000;
const SUBJECT = 'margay';

/** The authority of this installation: whoever has its key may call every service. It is made once. */
export const missingAuthority =
  (now: number): Completion =>
  (existing): SecretData => {
    const { 'ca.crt': certificate, 'ca.key': key } = existing;
    if (certificate && key) return {};
    if (certificate || key) throw halfAnAuthority();
    const keys = newKeyPair();
    const lifetime = { notBeforeMs: now - EARLIER_MS, notAfterMs: now + AUTHORITY_DAYS * DAY_MS };
    const issuer = { subject: SUBJECT, keys };
    const made = certify({
      subject: SUBJECT,
      publicKey: keys.publicKey,
      issuer,
      ...lifetime,
      use: { kind: 'authority' },
    });
    return { 'ca.crt': made, 'ca.key': pemOf(keys) };
  };

/** The certificate of a process that hosts these services, signed by the authority; one that is good for long stays. */
export const dueLeaf =
  (authority: SecretData, services: readonly string[], now: number): Completion =>
  (existing): SecretData => {
    const issuer = authorityOf(authority);
    const names = services.map(peerName);
    if (isGood(existing, issuer.certificate, names, now)) return {};
    const keys = newKeyPair();
    const end = Math.min(now + LEAF_DAYS * DAY_MS, Date.parse(issuer.certificate.validTo));
    const certificate = certify({
      subject: services[0] ?? SUBJECT,
      publicKey: keys.publicKey,
      issuer: { subject: SUBJECT, keys: issuer.keys },
      notBeforeMs: now - EARLIER_MS,
      notAfterMs: end,
      use: { kind: 'peer', names },
    });
    return { 'tls.crt': certificate, 'tls.key': pemOf(keys), 'ca.crt': authority['ca.crt'] ?? '' };
  };

function isGood(existing: SecretData, issuer: X509Certificate, names: readonly string[], now: number): boolean {
  const { 'tls.crt': pem, 'tls.key': key, 'ca.crt': trusted } = existing;
  if (!pem || !key || !trusted) return false;
  try {
    const certificate = new X509Certificate(pem);
    const isOurs = certificate.verify(issuer.publicKey) && new X509Certificate(trusted).raw.equals(issuer.raw);
    const isPair = certificate.checkPrivateKey(createPrivateKey(key));
    const isLasting = Date.parse(certificate.validTo) - now > RENEW_BELOW_DAYS * DAY_MS;
    return (
      isOurs && isPair && isLasting && certificate.subjectAltName === names.map((name) => `DNS:${name}`).join(', ')
    );
  } catch {
    return false; // not what was written here
  }
}

function authorityOf({ 'ca.crt': pem, 'ca.key': key }: SecretData): { certificate: X509Certificate; keys: KeyPair } {
  if (!pem || !key) throw halfAnAuthority();
  const privateKey = createPrivateKey(key);
  return { certificate: new X509Certificate(pem), keys: { privateKey, publicKey: createPublicKey(privateKey) } };
}

const pemOf = ({ privateKey }: KeyPair): string => privateKey.export({ type: 'pkcs8', format: 'pem' }).toString();

function halfAnAuthority() {
  const message =
    'The secret of the authority lacks ca.crt or ca.key; restore it, or delete it to have all certificates made anew.';
  return new FailedPreconditionError('bad_authority', message);
}

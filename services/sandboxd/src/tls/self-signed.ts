import { certify, newKeyPair } from '@margay/platform/certificates';

export interface Identity {
  keyPem: string;
  certificatePem: string;
}

/** Clocks of pods may be off, and the certificate is pinned by its bytes: its dates carry no meaning. */
const NOT_BEFORE_MS = Date.UTC(2020, 0, 1);
const NOT_AFTER_MS = Date.UTC(2049, 11, 31);

/** A key of its own with a certificate that nobody but itself vouches for. */
export function selfSigned(name: string): Identity {
  const keys = newKeyPair();
  const certificatePem = certify({
    subject: name,
    publicKey: keys.publicKey,
    issuer: { subject: name, keys },
    notBeforeMs: NOT_BEFORE_MS,
    notAfterMs: NOT_AFTER_MS,
    use: { kind: 'server', names: [name] },
  });
  return { keyPem: keys.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(), certificatePem };
}

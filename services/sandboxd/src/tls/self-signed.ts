import { generateKeyPairSync, randomBytes, sign, type KeyObject } from 'node:crypto';

export interface Identity {
  keyPem: string;
  certificatePem: string;
}

/** Tags of DER (X.690). */
const TAG = {
  integer: 0x02,
  bits: 0x03,
  octets: 0x04,
  oid: 0x06,
  utf8: 0x0c,
  utcTime: 0x17,
  sequence: 0x30,
  set: 0x31,
  version: 0xa0,
  extensions: 0xa3,
  dnsName: 0x82,
} as const;

const ECDSA_WITH_SHA256 = '2a8648ce3d040302';
const COMMON_NAME = '550403';
const SUBJECT_ALT_NAME = '551d11';
/** Clocks of pods may be off, and the certificate is pinned by its bytes: its dates carry no meaning. */
const VALIDITY = ['200101000000Z', '491231235959Z'] as const;

/** A key of its own with a certificate (X.509 v3, RFC 5280) that nobody but itself vouches for. */
export function selfSigned(name: string): Identity {
  const { privateKey, publicKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const algorithm = der(TAG.sequence, oid(ECDSA_WITH_SHA256));
  const body = certificateBody(name, algorithm, publicKey);
  const signature = der(TAG.bits, Buffer.from([0]), sign('sha256', body, privateKey));
  return {
    keyPem: privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    certificatePem: pem('CERTIFICATE', der(TAG.sequence, body, algorithm, signature)),
  };
}

function certificateBody(name: string, algorithm: Buffer, publicKey: KeyObject): Buffer {
  const attribute = der(TAG.sequence, oid(COMMON_NAME), der(TAG.utf8, Buffer.from(name)));
  const subject = der(TAG.sequence, der(TAG.set, attribute));
  const validity = der(TAG.sequence, ...VALIDITY.map((time) => der(TAG.utcTime, Buffer.from(time))));
  const names = der(TAG.octets, der(TAG.sequence, der(TAG.dnsName, Buffer.from(name))));
  const extensions = der(TAG.sequence, der(TAG.sequence, oid(SUBJECT_ALT_NAME), names));
  return der(
    TAG.sequence,
    der(TAG.version, der(TAG.integer, Buffer.from([2]))),
    der(TAG.integer, serial()),
    algorithm,
    subject,
    validity,
    subject,
    publicKey.export({ type: 'spki', format: 'der' }),
    der(TAG.extensions, extensions),
  );
}

/** Positive and without leading zeros. */
function serial(): Buffer {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x3f) | 0x40;
  return bytes;
}

const oid = (hex: string): Buffer => der(TAG.oid, Buffer.from(hex, 'hex'));

function der(tag: number, ...parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([tag]), lengthOf(body), body]);
}

function lengthOf({ length }: Buffer): Buffer {
  if (length < 0x80) return Buffer.from([length]);
  const bytes = Buffer.from(length.toString(16).padStart(length > 0xff ? 4 : 2, '0'), 'hex');
  return Buffer.from([0x80 | bytes.length, ...bytes]);
}

function pem(label: string, bytes: Buffer): string {
  const lines = bytes.toString('base64').match(/.{1,64}/g) ?? [];
  return [`-----BEGIN ${label}-----`, ...lines, `-----END ${label}-----`, ''].join('\n');
}

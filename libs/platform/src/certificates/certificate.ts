import { createHash, generateKeyPairSync, randomBytes, sign, type KeyObject } from 'node:crypto';
import { bitString, der, oid, pem, TAG, time } from './der';

const ECDSA_WITH_SHA256 = '2a8648ce3d040302';
const COMMON_NAME = '550403';
const SERVER_AUTHENTICATION = '2b06010505070301';
const CLIENT_AUTHENTICATION = '2b06010505070302';
const EXTENSION = {
  subjectKeyId: '551d0e',
  keyUsage: '551d0f',
  subjectAltName: '551d11',
  basicConstraints: '551d13',
  authorityKeyId: '551d23',
  extendedKeyUsage: '551d25',
} as const;
const VERSION_3 = der(0xa0, der(TAG.integer, Buffer.from([2])));
const EXTENSIONS = 0xa3;
const DNS_NAME = 0x82;
const KEY_IDENTIFIER = 0x80;
/** Bit 0, and bits 5 and 6, each with the number of bits that are not used. */
const USAGE = { digitalSignature: Buffer.from([7, 0x80]), signsCertificates: Buffer.from([1, 0x06]) };

export interface KeyPair {
  privateKey: KeyObject;
  publicKey: KeyObject;
}

export interface CertificateRequest {
  /** The common name of whoever holds the key. */
  subject: string;
  publicKey: KeyObject;
  /** Whoever vouches for it; the same subject and key for one that vouches for itself. */
  issuer: { subject: string; keys: KeyPair };
  notBeforeMs: number;
  notAfterMs: number;
  /**
   * `authority`: signs certificates, but no further authorities; `server`: serves these names; `peer`: also calls others
   * under them.
   */
  use: { kind: 'authority' } | { kind: 'server' | 'peer'; names: readonly string[] };
}

/** A key on the curve P-256, which every TLS library knows. */
export function newKeyPair(): KeyPair {
  return generateKeyPairSync('ec', { namedCurve: 'P-256' });
}

/** An X.509 v3 certificate (RFC 5280) as PEM, signed by ECDSA with SHA-256. */
export function certify(request: CertificateRequest): string {
  const { subject, publicKey, issuer } = request;
  const algorithm = der(TAG.sequence, oid(ECDSA_WITH_SHA256));
  const body = der(
    TAG.sequence,
    VERSION_3,
    der(TAG.integer, serial()),
    algorithm,
    nameOf(issuer.subject),
    der(TAG.sequence, time(request.notBeforeMs), time(request.notAfterMs)),
    nameOf(subject),
    spkiOf(publicKey),
    der(EXTENSIONS, der(TAG.sequence, ...extensionsOf(request))),
  );
  const signature = bitString(sign('sha256', body, issuer.keys.privateKey));
  return pem('CERTIFICATE', der(TAG.sequence, body, algorithm, signature));
}

function extensionsOf({ use, publicKey, issuer }: CertificateRequest): Buffer[] {
  const ids = [
    extension(EXTENSION.subjectKeyId, der(TAG.octets, keyIdOf(publicKey))),
    extension(EXTENSION.authorityKeyId, der(TAG.sequence, der(KEY_IDENTIFIER, keyIdOf(issuer.keys.publicKey)))),
  ];
  if (use.kind === 'authority') {
    const isAuthority = der(TAG.boolean, Buffer.from([0xff]));
    const noFurther = der(TAG.integer, Buffer.from([0]));
    return [
      critical(EXTENSION.basicConstraints, der(TAG.sequence, isAuthority, noFurther)),
      critical(EXTENSION.keyUsage, der(TAG.bits, USAGE.signsCertificates)),
      ...ids,
    ];
  }
  return [
    critical(EXTENSION.basicConstraints, der(TAG.sequence)),
    critical(EXTENSION.keyUsage, der(TAG.bits, USAGE.digitalSignature)),
    extension(EXTENSION.extendedKeyUsage, der(TAG.sequence, ...usesOf(use.kind).map(oid))),
    extension(
      EXTENSION.subjectAltName,
      der(TAG.sequence, ...use.names.map((name) => der(DNS_NAME, Buffer.from(name)))),
    ),
    ...ids,
  ];
}

const usesOf = (kind: 'server' | 'peer'): string[] =>
  kind === 'peer' ? [SERVER_AUTHENTICATION, CLIENT_AUTHENTICATION] : [SERVER_AUTHENTICATION];

const extension = (id: string, value: Buffer): Buffer => der(TAG.sequence, oid(id), der(TAG.octets, value));

/** Whoever does not understand it must refuse the certificate. */
const critical = (id: string, value: Buffer): Buffer =>
  der(TAG.sequence, oid(id), der(TAG.boolean, Buffer.from([0xff])), der(TAG.octets, value));

function nameOf(commonName: string): Buffer {
  const attribute = der(TAG.sequence, oid(COMMON_NAME), der(TAG.utf8, Buffer.from(commonName)));
  return der(TAG.sequence, der(TAG.set, attribute));
}

const spkiOf = (key: KeyObject): Buffer => key.export({ type: 'spki', format: 'der' });

const keyIdOf = (key: KeyObject): Buffer => createHash('sha256').update(spkiOf(key)).digest().subarray(0, 20);

/** Positive and without leading zeros. */
function serial(): Buffer {
  const bytes = randomBytes(16);
  bytes[0] = ((bytes[0] ?? 0) & 0x3f) | 0x40;
  return bytes;
}

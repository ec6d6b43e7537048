/** Tags of DER (X.690) that certificates need. */
export const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bits: 0x03,
  octets: 0x04,
  oid: 0x06,
  utf8: 0x0c,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const;

/** A value with its tag and length. */
export function der(tag: number, ...parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  return Buffer.concat([Buffer.from([tag]), lengthOf(body), body]);
}

export const oid = (hex: string): Buffer => der(TAG.oid, Buffer.from(hex, 'hex'));

export function pem(label: string, bytes: Buffer): string {
  const lines = bytes.toString('base64').match(/.{1,64}/g) ?? [];
  return [`-----BEGIN ${label}-----`, ...lines, `-----END ${label}-----`, ''].join('\n');
}

/** Whole bytes after the number of unused bits, which is none. */
export const bitString = (bytes: Buffer): Buffer => der(TAG.bits, Buffer.from([0]), bytes);

/** UTCTime up to 2049, GeneralizedTime after it, as RFC 5280 §4.1.2.5 has it. */
export function time(atMs: number): Buffer {
  const digits = `${new Date(atMs).toISOString().replace(/[-:T]|\.\d+/g, '')}`;
  return digits < '2050'
    ? der(TAG.utcTime, Buffer.from(digits.slice(2)))
    : der(TAG.generalizedTime, Buffer.from(digits));
}

function lengthOf({ length }: Buffer): Buffer {
  if (length < 0x80) return Buffer.from([length]);
  const hex = length.toString(16);
  const bytes = Buffer.from(hex.padStart(hex.length + (hex.length % 2), '0'), 'hex');
  return Buffer.from([0x80 | bytes.length, ...bytes]);
}

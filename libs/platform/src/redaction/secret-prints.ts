import { createHmac } from 'node:crypto';
import { RollingHash } from './rolling-hash';
import { spellingsOf } from './spellings';

/** Secrets of fewer characters would be met by chance. */
export const SECRET_MIN_CHARS = 8;
/** Every print tells where it may begin by so many bytes. */
export const WINDOW_BYTES = 8;
const MAC_BYTES = 16;

/** One spelling of a secret, by which it is found and from which it cannot be read. */
export interface SecretPrint {
  name: string;
  /** Whose it is; empty: the tenant's. */
  owner: string;
  bytes: number;
  /** Hash of its first bytes, 24 bits. */
  start: number;
  /** Hash of all of it, 32 bits. */
  whole: number;
  /** Keyed and cut to 16 bytes, which decides. */
  mac: Buffer;
}

export interface NamedSecret {
  name: string;
  owner: string;
  value: string;
}

/** The prints of all spellings of these secrets; shorter ones than eight characters have none. */
export function printsOf(key: Uint8Array, secrets: readonly NamedSecret[]): SecretPrint[] {
  const hash = new RollingHash(key);
  return secrets
    .filter(({ value }) => value.length >= SECRET_MIN_CHARS)
    .flatMap(({ name, owner, value }) =>
      spellingsOf([value])
        .filter(({ length }) => length >= WINDOW_BYTES)
        .map((spelling) => ({
          name,
          owner,
          bytes: spelling.length,
          start: startOf(hash.of(spelling.subarray(0, WINDOW_BYTES))),
          whole: hash.of(spelling),
          mac: macOf(key, spelling),
        })),
    );
}

export const startOf = (windowHash: number): number => windowHash >>> 8;

export function macOf(key: Uint8Array, bytes: Uint8Array): Buffer {
  return createHmac('sha256', key).update(bytes).digest().subarray(0, MAC_BYTES);
}

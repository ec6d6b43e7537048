import { createHash, randomBytes } from 'node:crypto';

/** `mk_<cell>_<id>_<secret>`: the cell it belongs to, its id, a 256-bit secret. */
const KEY = /^mk_([a-z0-9]{1,8})_([0-9a-f]{32})_([A-Za-z0-9_-]{43})$/;

export interface NewKey {
  id: string;
  /** The whole key: shown once, never stored. */
  text: string;
  secretHash: string;
}

export function makeKey(cell: string): NewKey {
  const id = randomBytes(16).toString('hex');
  const text = `mk_${cell}_${id}_${randomBytes(32).toString('base64url')}`;
  return { id, text, secretHash: secretHash(text) };
}

/** Id of a well-formed key text; undefined for anything else. */
export function keyIdOf(text: string): string | undefined {
  return KEY.exec(text)?.[2];
}

/** SHA-256 of the whole key text, lower-case hex. */
export function secretHash(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

import { createCipheriv, createDecipheriv, randomBytes } from 'node:crypto';
import { InternalError } from '@margay/errors';

const CIPHER = 'aes-256-gcm';
export const KEY_BYTES = 32;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

/** What AES-256-GCM makes of a text; both base64. */
export interface Sealed {
  nonce: string;
  /** Ciphertext and tag. */
  ct: string;
}

/** Where a ciphertext belongs: it opens nowhere else, and at no other revision. */
export interface Place {
  tenantId: string;
  collection: string;
  id: string;
  field: string;
  rev: number;
}

export function seal(key: Buffer, plain: Buffer, place: Place): Sealed {
  const nonce = randomBytes(NONCE_BYTES);
  const cipher = createCipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(boundTo(place));
  const ct = Buffer.concat([cipher.update(plain), cipher.final(), cipher.getAuthTag()]);
  return { nonce: nonce.toString('base64'), ct: ct.toString('base64') };
}

/** @throws InternalError `unreadable_ciphertext` for another key, another place, or changed bytes */
export function unseal(key: Buffer, sealed: Sealed, place: Place): Buffer {
  const bytes = Buffer.from(sealed.ct, 'base64');
  try {
    const nonce = Buffer.from(sealed.nonce, 'base64');
    const decipher = createDecipheriv(CIPHER, key, nonce, { authTagLength: TAG_BYTES }).setAAD(boundTo(place));
    decipher.setAuthTag(bytes.subarray(-TAG_BYTES));
    return Buffer.concat([decipher.update(bytes.subarray(0, -TAG_BYTES)), decipher.final()]);
  } catch (cause) {
    const message = `What is stored as ${place.field} of ${place.id} in ${place.collection} was not sealed for this place, or was changed.`;
    throw new InternalError('unreadable_ciphertext', message, { cause });
  }
}

function boundTo({ tenantId, collection, id, field, rev }: Place): Buffer {
  return Buffer.from(JSON.stringify([tenantId, collection, id, field, rev]));
}

import type { Place } from './seal';

/** The keys that encrypt the data keys of tenants: a file, or a service that never gives its keys away. */
export abstract class KeyEncryption {
  /** Id of the key that new data keys are wrapped with. */
  abstract readonly activeKid: string;
  abstract has(kid: string): boolean;
  /** With the active key. */
  abstract wrap(key: Buffer, place: Place): Promise<WrappedKey>;
  /** @throws FailedPreconditionError `kek_missing`; InternalError `unreadable_ciphertext` */
  abstract unwrap(wrapped: WrappedKey, place: Place): Promise<Buffer>;
}

export interface WrappedKey {
  /** The key that it was wrapped with. */
  kid: string;
  wrapped: string;
}

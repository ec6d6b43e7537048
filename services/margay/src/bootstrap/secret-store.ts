import type { SecretData } from './secrets';

export interface StoredSecret {
  data: SecretData;
  /** Changes with every write. */
  version: string;
}

/** Where secrets are kept. */
export abstract class SecretStore {
  abstract find(name: string): Promise<StoredSecret | undefined>;
  /** @throws ConflictError when it is there already */
  abstract create(name: string, data: SecretData): Promise<void>;
  /** Adds to it or replaces single keys. @throws ConflictError when the version is another one by now */
  abstract patch(name: string, data: SecretData, version: string): Promise<void>;
}

/** Somebody else wrote first: look again. */
export class ConflictError extends Error {
  constructor(name: string, options?: ErrorOptions) {
    super(`The secret ${name} was written by somebody else at the same time.`, options);
  }
}

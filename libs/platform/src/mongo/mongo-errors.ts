import { UnavailableError } from '@margay/errors';

/** MongoDB names a violated unique index by this code, whichever index it was. */
const DUPLICATE_KEY = 11_000;

export function isDuplicateKey(error: unknown): boolean {
  return typeof error === 'object' && error !== null && (error as { code?: unknown }).code === DUPLICATE_KEY;
}

/** What a caller is told of a failure of the driver; other errors as they are. */
export function translateStoreError(error: unknown): unknown {
  if (!(error instanceof Error) || !error.name.startsWith('Mongo')) return error;
  return new UnavailableError('store_unavailable', 'the document store did not answer; try again', { cause: error });
}

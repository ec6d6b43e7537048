/** MongoDB names a violated unique index by this code, whichever index it was. */
const DUPLICATE_KEY = 11_000;

export function isDuplicateKey(error: unknown): boolean {
  return typeof error === 'object' && error !== null && (error as { code?: unknown }).code === DUPLICATE_KEY;
}

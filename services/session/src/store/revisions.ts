import { isAtRev } from '@margay/contracts';
import { AbortedError, type MargayError } from '@margay/errors';

/** A write that found something newer is tried again so often. */
export const REV_ATTEMPTS = 5;

/** @param wanted see `isAtRev`. @throws AbortedError `rev_moved` */
export function requireRev(what: string, wanted: number | undefined, rev: number): void {
  if (!isAtRev(wanted, rev)) throw revMoved(what);
}

export function revMoved(what: string): MargayError {
  return new AbortedError('rev_moved', `${what} is at another revision; read it again`);
}

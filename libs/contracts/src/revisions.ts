/** As a wanted revision: any, but there must be one. */
export const ANY_REV = 0xffff_ffff;

/**
 * Whether what is at `rev` (0: there is none) may be written by who wants it at `wanted`.
 * @param wanted 0: there must be none; `ANY_REV`: one; undefined: whatever is there
 */
export function isAtRev(wanted: number | undefined, rev: number): boolean {
  return wanted === undefined || (wanted === ANY_REV ? rev > 0 : wanted === rev);
}

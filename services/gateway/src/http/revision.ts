import { ANY_REV } from '@margay/contracts';
import { AbortedError, InvalidArgumentError } from '@margay/errors';
import { z } from 'zod';

/** Of routes that change what has a revision. */
export const RevisionHeaders = z.object({
  'If-Match': z
    .string()
    .optional()
    .describe('only at this revision: an `ETag` as it was read, or `*`; another one answers 412'),
});
export const WriteHeaders = RevisionHeaders.extend({
  'If-None-Match': z.string().optional().describe('`*`: only where there is none'),
});

/** An `ETag` of HTTP (RFC 9110, 8.8.3); proxies that compress make weak ones of ours, which say the same of a revision. */
const ENTITY_TAG = /^(?:W\/)?"([\x21\x23-\x7e\x80-\xff]*)"$/;

export function etagOf({ rev }: { rev: number }): { etag: string } {
  return { etag: `"${rev}"` };
}

/**
 * The revision that a request insists on; 0: there must be none; `ANY_REV`: one.
 * @throws InvalidArgumentError `validation`; AbortedError `rev_moved` for an ETag that no revision has
 */
export function wantedRev(ifMatch: string | undefined, ifNoneMatch?: string): number | undefined {
  if (ifNoneMatch !== undefined) {
    if (ifNoneMatch.trim() !== '*' || ifMatch !== undefined)
      throw new InvalidArgumentError('validation', "Invalid header: 'If-None-Match' must be *, without If-Match");
    return 0;
  }
  if (ifMatch === undefined) return undefined;
  if (ifMatch.trim() === '*') return ANY_REV;
  const [, tag] = ENTITY_TAG.exec(ifMatch.trim()) ?? [];
  if (tag === undefined)
    throw new InvalidArgumentError('validation', `Invalid header: 'If-Match' must be one ETag such as "3", or *`);
  if (!/^[1-9]\d{0,8}$/.test(tag))
    throw new AbortedError('rev_moved', `no revision has the ETag "${tag.slice(0, 64)}"; read it again`);
  return Number(tag);
}

/** The same as an ETag; empty: any. */
export function wantedEtag(ifMatch: string | undefined): string {
  const rev = wantedRev(ifMatch);
  return rev === undefined || rev === ANY_REV ? '' : etagOf({ rev }).etag;
}

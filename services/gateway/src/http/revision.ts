import { InvalidArgumentError } from '@margay/errors';
import { z } from 'zod';

/** Of routes that change what has a revision. */
export const RevisionHeaders = z.object({
  'If-Match': z
    .string()
    .optional()
    .describe('only at this revision: an `ETag` as it was read; another one answers 412'),
});
export const WriteHeaders = RevisionHeaders.extend({
  'If-None-Match': z.string().optional().describe('`*`: only where there is none'),
});

export function etagOf({ rev }: { rev: number }): { etag: string } {
  return { etag: `"${rev}"` };
}

/** The revision that a request insists on; 0: there must be none. @throws InvalidArgumentError `validation` */
export function wantedRev(ifMatch: string | undefined, ifNoneMatch?: string): number | undefined {
  if (ifNoneMatch !== undefined) {
    if (ifNoneMatch.trim() !== '*' || ifMatch !== undefined)
      throw new InvalidArgumentError('validation', "Invalid header: 'If-None-Match' must be *, without If-Match");
    return 0;
  }
  if (ifMatch === undefined || ifMatch.trim() === '*') return undefined;
  const [, rev] = /^"(\d{1,9})"$/.exec(ifMatch.trim()) ?? [];
  if (rev === undefined)
    throw new InvalidArgumentError('validation', `Invalid header: 'If-Match' must be an ETag such as "3"`);
  return Number(rev);
}

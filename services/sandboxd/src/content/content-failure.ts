/** Why content could not be brought, told apart for machines; `message` is for people. */
export type FailureReason =
  | 'auth'
  | 'not_found'
  | 'network'
  | 'egress_denied'
  | 'too_large'
  | 'timeout'
  | 'disk_full'
  | 'unsafe_archive'
  | 'bad_archive'
  | 'not_empty'
  | 'lfs_unavailable'
  | 'git_failed';

/** The content itself is to blame, or where it comes from: trying again by itself would end the same way. */
export class ContentFailure extends Error {
  constructor(
    readonly reason: FailureReason,
    message: string,
  ) {
    super(message);
  }
}

const FULL = new Set(['ENOSPC', 'EDQUOT']);

/** What an error of the file system says about the content; undefined: nothing. */
export function failureOf(error: unknown): ContentFailure | undefined {
  if (error instanceof ContentFailure) return error;
  const { code = '' } = error as NodeJS.ErrnoException;
  if (FULL.has(code)) return new ContentFailure('disk_full', 'The disk of the workspace is full.');
  if (code === 'EFBIG') return new ContentFailure('too_large', 'A file is larger than this sandbox may write.');
  return undefined;
}

/** A name from elsewhere, fit to be shown. */
export function shownName(name: string): string {
  return JSON.stringify(name.length > 200 ? `${name.slice(0, 200)}…` : name);
}

import { InvalidArgumentError } from '@margay/errors';

/** One range of bytes: from `offset`, or the last `suffix` bytes; `length` 0 = to the end. */
export type ByteRange = { offset: number; length: number } | { suffix: number };

/** A single range; undefined where there is none, or a form that may be ignored (RFC 9110 §14.2). */
export function parseRange(header: string | undefined): ByteRange | undefined {
  const match = /^bytes=(\d{0,15})-(\d{0,15})$/.exec(header?.trim() ?? '');
  if (!match) return undefined;
  const [, first = '', last = ''] = match;
  if (first === '') return last === '' ? undefined : { suffix: Number(last) };
  if (last === '') return { offset: Number(first), length: 0 };
  return Number(last) < Number(first) ? undefined : { offset: Number(first), length: Number(last) - Number(first) + 1 };
}

export function unsatisfiable(totalBytes: number) {
  const message = `the range lies outside the ${totalBytes} bytes there are`;
  return new InvalidArgumentError('range_not_satisfiable', message, { details: { total_bytes: totalBytes } });
}

import { InvalidArgumentError } from '@margay/errors';

const MAX_CHARS = 200;
// eslint-disable-next-line no-control-regex -- these are among what git refuses
const REFUSED = /[\u0000-\u0020\u007f~^:?*[\\]|\.\.|@\{|\/\/|\/\.|\.lock(\/|$)|[/.]$|^[-/.]|^@$/;

/** A name that git takes for a branch, by the rules of `git check-ref-format`. @throws InvalidArgumentError `bad_request` */
export function checkedBranch(field: string, text: string): string {
  const name = text.trim();
  if (name === '') throw new InvalidArgumentError('bad_request', `Invalid input: '${field}' is required`);
  if (name.length <= MAX_CHARS && !REFUSED.test(name)) return name;
  throw new InvalidArgumentError('bad_request', `Invalid input: '${field}' is no name that git takes for a branch`);
}

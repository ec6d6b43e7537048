import { isNestedDeeper, JSON_DEPTH_MAX } from '@margay/contracts';
import { InvalidArgumentError } from '@margay/errors';
import type { z } from 'zod';
import type { Operation } from './operation';

/** JSON of a request body; nothing at all counts as `{}`. Throws `bad_request` if it is no JSON object. */
export function parseJsonBody(body: unknown): unknown {
  if (!Buffer.isBuffer(body) || body.length === 0) return {};
  const text = textOf(body).trim();
  if (text === '') return {};
  if (isNestedDeeper(text))
    throw new InvalidArgumentError(
      'bad_request',
      `Invalid input: the body is nested more than ${JSON_DEPTH_MAX} levels deep`,
    );
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // The parser's own words would quote the body, and that may hold a secret.
    throw new InvalidArgumentError('bad_request', 'Invalid input: the body is not valid JSON');
  }
}

/** What is no UTF-8 would be stored as something else than what was sent. */
function textOf(body: Buffer): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(body);
  } catch (cause) {
    throw new InvalidArgumentError('bad_request', 'Invalid input: the body is not valid UTF-8', { cause });
  }
}

/** Checks a body or query; throws `bad_request` (reference routes) or `validation` (our own), naming the field. */
export function checkInput<S extends z.ZodType>(schema: S, value: unknown, family: Operation['family']): z.infer<S> {
  const checked = schema.safeParse(value);
  if (checked.success) return checked.data;
  const errors = checked.error.issues.map(({ path, message, code }) => ({
    loc: path.map(String),
    msg: message,
    type: code,
  }));
  const [first] = checked.error.issues;
  const message = sentence(first?.path.join('.') ?? '', first?.message ?? 'not usable');
  throw new InvalidArgumentError(family === 'margay' ? 'validation' : 'bad_request', message, { details: { errors } });
}

/** Messages of our own name the field already; those of the schema library do not. */
function sentence(field: string, message: string): string {
  if (message.includes("'")) return message;
  const cause = message.replace(/^Invalid input: /, '');
  return field === '' ? `Invalid input: the body is unusable: ${cause}` : `Invalid input: '${field}': ${cause}`;
}

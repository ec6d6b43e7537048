import { InvalidArgumentError } from '@margay/errors';
import type { z } from 'zod';
import type { Operation } from './operation';

/** JSON of a request body; nothing at all counts as `{}`. Throws `bad_request` if it is no JSON object. */
export function parseJsonBody(body: unknown): unknown {
  if (!Buffer.isBuffer(body) || body.length === 0) return {};
  const text = body.toString('utf8').trim();
  if (text === '') return {};
  try {
    return JSON.parse(text) as unknown;
  } catch (cause) {
    throw new InvalidArgumentError('bad_request', 'Invalid input: the body is not valid JSON', { cause });
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

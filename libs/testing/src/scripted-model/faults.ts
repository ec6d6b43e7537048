import type { z } from 'zod';
import { invalid } from './api-error';

/** Words a schema violation as the API does for unknown, missing and mistyped parameters. */
export function fromIssue(issue: z.core.$ZodIssue | undefined, at: string): Error {
  const path = (issue?.path ?? []).reduce<string>(
    (name, key) => (typeof key === 'number' ? `${name}[${key}]` : `${name}.${String(key)}`),
    at,
  );
  if (issue?.code === 'unrecognized_keys') {
    const name = `${path}.${issue.keys[0] ?? ''}`;
    return invalid(`Unknown parameter: '${name}'.`, name, 'unknown_parameter');
  }
  if (issue?.code === 'invalid_type' && issue.message.includes('undefined'))
    return invalid(`Missing required parameter: '${path}'.`, path, 'missing_required_parameter');
  return invalid(`Invalid value for '${path}': ${issue?.message ?? 'malformed'}.`, path, 'invalid_value');
}

/** A JSON object, not an array and not null. */
export const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

import { createHash } from 'node:crypto';

/**
 * JSON with sorted keys and without undefined fields: equal values have equal texts whatever a store or a wire did to
 * them, also to halves of surrogate pairs, which UTF-8 can't hold.
 */
export function canonicalJson(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.toWellFormed());
  if (value === null || typeof value !== 'object') return JSON.stringify(value) ?? 'null';
  if (Array.isArray(value)) return `[${value.map((item) => canonicalJson(item ?? null)).join(',')}]`;
  const object = value as Record<string, unknown>;
  const fields: string[] = [];
  for (const key of Object.keys(object).sort()) {
    if (object[key] !== undefined) fields.push(`${canonicalJson(key)}:${canonicalJson(object[key])}`);
  }
  return `{${fields.join(',')}}`;
}

export function sha256Hex(text: string): string {
  return createHash('sha256').update(text).digest('hex');
}

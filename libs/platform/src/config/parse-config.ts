import { readFileSync } from 'node:fs';
import { InvalidArgumentError } from '@margay/errors';
import type { z } from 'zod';
import { hideInLogs } from '../logging/hidden-values';

/** Names of variables that hold secrets. */
const SECRET_NAME = /_(KEY|TOKEN|SECRET|PASSWORD)$/;

/**
 * Reads a service's environment once. Keys of the schema are the names of the variables; `<NAME>_FILE` names a file that
 * holds the value (one trailing newline is dropped); an empty text counts as unset.
 * Values of variables that hold secrets are kept out of logs from now on.
 * Throws one InvalidArgumentError `bad_environment` that lists all faulty names and never a value.
 */
export function parseConfig<S extends z.ZodObject>(schema: S, env: NodeJS.ProcessEnv): Readonly<z.infer<S>> {
  const faults = new Map<string, string>();
  const raw: Record<string, string> = {};
  for (const name of Object.keys(schema.shape)) {
    const value = readVariable(name, env, schema, faults);
    if (value !== undefined) raw[name] = value;
    if (value !== undefined && SECRET_NAME.test(name)) hideInLogs(name, value);
  }
  const parsed = schema.safeParse(raw);
  for (const issue of parsed.error?.issues ?? []) {
    const name = String(issue.path[0] ?? 'the combination of variables');
    if (!faults.has(name)) faults.set(name, explain(schema, name, raw[name] === undefined));
  }
  if (parsed.success && faults.size === 0) return deepFreeze(parsed.data);
  const list = [...faults].map(([name, fault]) => `${name} (${fault})`).join(', ');
  throw new InvalidArgumentError('bad_environment', `Cannot start, correct these environment variables: ${list}.`, {
    details: { names: [...faults.keys()] },
  });
}

function readVariable(name: string, env: NodeJS.ProcessEnv, schema: z.ZodObject, faults: Map<string, string>) {
  const fileName = `${name}_FILE`;
  const value = env[name] || undefined;
  const path = fileName in schema.shape ? undefined : env[fileName] || undefined;
  if (path === undefined) return value;
  if (value !== undefined) {
    faults.set(name, `also given as ${fileName}; set one of them`);
    return value;
  }
  try {
    return readFileSync(path, 'utf8').replace(/\r?\n$/, '') || undefined;
  } catch (error) {
    faults.set(fileName, `its file cannot be read: ${(error as NodeJS.ErrnoException).code ?? 'unknown'}`);
    return undefined;
  }
}

// Only the schema's own description is shown: messages of checks could quote the value.
function explain(schema: z.ZodObject, name: string, isMissing: boolean): string {
  const description = descriptionOf(schema.shape[name] as Described | undefined);
  const what = isMissing ? 'missing' : 'not usable';
  return description ? `${what}: ${description}` : what;
}

interface Described {
  description?: string;
  unwrap?: () => Described;
}

function descriptionOf(field: Described | undefined): string | undefined {
  return field && (field.description ?? descriptionOf(field.unwrap?.()));
}

function deepFreeze<T>(value: T): T {
  if (typeof value !== 'object' || value === null || Object.isFrozen(value)) return value;
  for (const inner of Object.values(value)) deepFreeze(inner);
  return Object.freeze(value);
}

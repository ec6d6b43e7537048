import { readFile, stat } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import { InvalidArgumentError } from '@margay/client';
import { closest } from 'fastest-levenshtein';
import { z } from 'zod';
import type { Environment } from './config';

const text = z.string().min(1).optional();
const Profile = z.looseObject({
  url: text,
  key: text,
  key_file: text,
  tenant: text,
  project: text,
  model: text,
  mode: z.enum(['plan', 'act']).optional(),
});
const Profiles = z.looseObject({ current: text, profiles: z.record(z.string(), Profile) });

export type Profile = z.infer<typeof Profile>;

export interface NamedProfile {
  name: string | undefined;
  profile: Profile;
}

const OTHERS = 0o077;

/** The profile that was asked for, else the current one, else an empty one where there is no file. */
export async function readProfile(environment: Environment, asked: string | undefined): Promise<NamedProfile> {
  const path = join(environment.home, 'profiles.json');
  const file = await readProfiles(path);
  const name = asked ?? environment.profile ?? file?.current;
  if (name === undefined) return { name: undefined, profile: {} };
  const profile = file?.profiles[name];
  if (profile) return { name, profile };
  const names = Object.keys(file?.profiles ?? {});
  const near = names.length ? `; the nearest is "${closest(name, names)}"` : '';
  throw new InvalidArgumentError('profile_not_found', `${path} has no profile "${name}"${near}`);
}

async function readProfiles(path: string): Promise<z.infer<typeof Profiles> | undefined> {
  const facts = await stat(path).catch(() => undefined); // no file: everything comes from flags and environment
  if (!facts) return undefined;
  if (process.platform !== 'win32' && (facts.mode & OTHERS) !== 0)
    throw new InvalidArgumentError(
      'profiles_exposed',
      `${path} holds keys and is open to others (mode ${(facts.mode & 0o777).toString(8)})`,
      { details: { hint: `chmod 600 ${path}` } },
    );
  const parsed = Profiles.safeParse(parseJson(await readFile(path, 'utf8'), path));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new InvalidArgumentError('bad_profiles', `${path}: ${issue?.path.join('.') || 'content'}: ${issue?.message}`);
}

function parseJson(content: string, path: string): unknown {
  try {
    return JSON.parse(content);
  } catch (cause) {
    throw new InvalidArgumentError('bad_profiles', `${path} is not JSON`, { cause });
  }
}

/** The key: environment, then a file the environment names, then the profile's key or key file. */
export async function readKey(environment: Environment, profile: Profile): Promise<string | undefined> {
  if (environment.apiKey) return environment.apiKey;
  if (environment.apiKeyFile) return readKeyFile(environment.apiKeyFile);
  if (profile.key) return profile.key;
  return profile.key_file ? readKeyFile(resolve(environment.home, profile.key_file)) : undefined;
}

async function readKeyFile(path: string): Promise<string> {
  try {
    return (await readFile(path, 'utf8')).trim();
  } catch (cause) {
    throw new InvalidArgumentError('key_file_not_found', `cannot read the key file ${path}`, { cause });
  }
}

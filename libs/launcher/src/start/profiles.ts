import { readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { FailedPreconditionError } from '@margay/errors';
import { z } from 'zod';

/** Fields of other profiles, and those of later versions, are kept as they are. */
const Profiles = z.looseObject({
  current: z.string().optional(),
  profiles: z.record(z.string(), z.looseObject({})).default({}),
});

export interface LocalProfile {
  url: string;
  apiKeyFile: string;
}

/** Writes profile `local` into `profiles.json` of the home, mode 0600; it becomes current where none is. Returns the path. */
export async function writeLocalProfile(home: string, profile: LocalProfile): Promise<string> {
  const file = join(home, 'profiles.json');
  const stored = await readProfiles(file);
  const local = { ...stored.profiles.local, url: profile.url, key_file: profile.apiKeyFile };
  const next = { ...stored, current: stored.current ?? 'local', profiles: { ...stored.profiles, local } };
  await writeFile(`${file}.new`, `${JSON.stringify(next, null, 2)}\n`, { mode: 0o600 });
  await rename(`${file}.new`, file);
  return file;
}

async function readProfiles(file: string): Promise<z.infer<typeof Profiles>> {
  const text = await readFile(file, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '{}';
    throw error;
  });
  try {
    return Profiles.parse(JSON.parse(text));
  } catch (cause) {
    throw new FailedPreconditionError(
      'profiles_unreadable',
      `${file} is not a profile file; correct it or move it away`,
      { cause },
    );
  }
}

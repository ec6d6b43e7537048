import { homedir } from 'node:os';
import { join } from 'node:path';

/** What the environment says; empty variables count as unset. */
export interface Environment {
  url: string | undefined;
  apiKey: string | undefined;
  apiKeyFile: string | undefined;
  profile: string | undefined;
  tenant: string | undefined;
  /** Folder of `profiles.json`. */
  home: string;
  wantsColor: boolean;
  isDumb: boolean;
}

export function readEnvironment(variables: NodeJS.ProcessEnv = process.env): Environment {
  const read = (name: string): string | undefined => variables[name] || undefined;
  return {
    url: read('MARGAY_URL'),
    apiKey: read('MARGAY_API_KEY'),
    apiKeyFile: read('MARGAY_API_KEY_FILE'),
    profile: read('MARGAY_PROFILE'),
    tenant: read('MARGAY_TENANT'),
    home: read('MARGAY_HOME') ?? join(homedir(), '.margay'),
    wantsColor: read('FORCE_COLOR') !== undefined || read('NO_COLOR') === undefined,
    isDumb: read('TERM') === 'dumb',
  };
}

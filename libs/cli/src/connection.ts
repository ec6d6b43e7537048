import { InvalidArgumentError, MargayClient, UnauthenticatedError } from '@margay/client';
import { readKey, readProfile, type Profile } from './profiles';
import type { Terminal } from './terminal';

/** Global flags as commander gives them. */
export interface GlobalOptions {
  profile?: string;
  url?: string;
  tenant?: string;
  json?: boolean;
  quiet?: boolean;
  plain?: boolean;
  color?: boolean;
  verbose?: boolean;
  /** Milliseconds. */
  timeout?: number;
}

export interface Connection {
  client: MargayClient;
  url: string;
  profile: Profile;
}

/** A client by flag, environment and profile, in this order for each setting. */
export async function connect(options: GlobalOptions, terminal: Terminal): Promise<Connection> {
  const { environment, clock } = terminal;
  const { name, profile } = await readProfile(environment, options.profile);
  const url = options.url ?? environment.url ?? profile.url;
  if (!url)
    throw new InvalidArgumentError('no_server', 'no server is named: there is no profile, no MARGAY_URL and no --url', {
      details: { hint: 'npm start, or give the address with --url' },
    });
  const apiKey = await readKey(environment, profile);
  if (!apiKey)
    throw new UnauthenticatedError('no_key', `${name ? `profile "${name}"` : url} has no key`, {
      details: { hint: 'set MARGAY_API_KEY or MARGAY_API_KEY_FILE' },
    });
  const tenant = options.tenant ?? environment.tenant ?? profile.tenant;
  const client = new MargayClient({
    baseUrl: url,
    apiKey,
    surface: 'cli',
    clock,
    ...(tenant ? { tenant } : {}),
    ...(options.timeout ? { timeoutMs: options.timeout } : {}),
  });
  return { client, url, profile };
}

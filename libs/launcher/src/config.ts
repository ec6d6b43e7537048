import { homedir } from 'node:os';
import { delimiter, join } from 'node:path';

/** What the launcher takes from the environment; the only place of this library that reads `process.env`. */
export interface LauncherConfig {
  /** `MARGAY_NATS_URL`: a NATS server that already runs. */
  natsUrl?: string;
  /** `MARGAY_MONGODB_URL`: a document store that already runs. */
  mongodbUrl?: string;
  /** `MARGAY_EGRESS_POLICY_FILE`: who may reach what outside, see docs/egress.md. */
  egressPolicyFile?: string;
  /** `$XDG_CACHE_HOME/margay`, else `~/.cache/margay`: fetched servers, one folder per name and version. */
  cacheDirectory: string;
  /** Folders of `PATH`, in order. */
  path: readonly string[];
  /** The whole environment, handed down to child processes. */
  environment: Readonly<NodeJS.ProcessEnv>;
}

export function launcherConfig(environment: NodeJS.ProcessEnv = process.env): LauncherConfig {
  return {
    ...(environment.MARGAY_NATS_URL && { natsUrl: environment.MARGAY_NATS_URL }),
    ...(environment.MARGAY_MONGODB_URL && { mongodbUrl: environment.MARGAY_MONGODB_URL }),
    ...(environment.MARGAY_EGRESS_POLICY_FILE && { egressPolicyFile: environment.MARGAY_EGRESS_POLICY_FILE }),
    cacheDirectory: join(environment.XDG_CACHE_HOME || join(homedir(), '.cache'), 'margay'),
    path: (environment.PATH ?? '').split(delimiter).filter((folder) => folder !== ''),
    environment: { ...environment },
  };
}

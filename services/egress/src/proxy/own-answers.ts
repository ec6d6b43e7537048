import type { EgressCaller, EgressPolicy } from '@margay/contracts';
import { isFor } from '../policy/judge';

/** A name that nobody else has: what is asked there the proxy answers itself. */
export const OWN_HOST = 'egress.margay';
const GIT_HOSTS = '/git-hosts';
const HTTPS_PORT = 443;

/** Undefined for what it does not know. */
export function ownAnswer(path: string, policy: EgressPolicy, caller: EgressCaller): string | undefined {
  return path === GIT_HOSTS ? gitHosts(policy, caller).map((host) => `${host}\n`).join('') : undefined; // prettier-ignore
}

/** Hosts, with a port where it is an unusual one, to whose requests git accounts may be added. */
function gitHosts({ mode, rules }: EgressPolicy, caller: EgressCaller): string[] {
  if (mode === 'none') return [];
  const usable = rules.filter((rule) => rule.inject?.as === 'basic' && isFor(rule, caller));
  const addresses = usable.flatMap(({ hosts, ports }) => {
    const suffix = ports.includes(HTTPS_PORT) ? '' : `:${ports[0]}`;
    return hosts.filter((host) => !host.startsWith('*.')).map((host) => `${host}${suffix}`);
  });
  return [...new Set(addresses)];
}

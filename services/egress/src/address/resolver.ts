import { lookup, Resolver } from 'node:dns/promises';
import { DeadlineExceededError, UnavailableError } from '@margay/errors';

/** Addresses of a name. `isTrusted`: the operator named it, so it may come from this machine's own table of hosts. */
export type Resolve = (host: string, isTrusted: boolean) => Promise<string[]>;

const TIMEOUT_MS = 3_000;
const TRIES = 2;

/**
 * Asks the name servers without the search list of this machine, and without occupying the few threads that `lookup`
 * shares with the file system: a sandbox can make names that take long.
 */
export function systemResolve(): Resolve {
  const resolver = new Resolver({ timeout: TIMEOUT_MS, tries: TRIES });
  return async (host, isTrusted) => {
    if (isTrusted) return (await lookup(host, { all: true })).map(({ address }) => address);
    const answers = await Promise.allSettled([resolver.resolve4(host), resolver.resolve6(host)]);
    const addresses = answers.flatMap((answer) => (answer.status === 'fulfilled' ? answer.value : []));
    if (addresses.length > 0) return addresses;
    throw (answers[0] as PromiseRejectedResult).reason;
  };
}

/** @throws UnavailableError `egress_resolve`, DeadlineExceededError `egress_timeout` */
export async function addressesOf(resolve: Resolve, host: string, isTrusted: boolean): Promise<string[]> {
  try {
    const addresses = await resolve(host, isTrusted);
    if (addresses.length > 0) return addresses;
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ETIMEOUT')
      throw new DeadlineExceededError('egress_timeout', `No name server said in time where ${host} is.`, { cause });
    throw new UnavailableError('egress_resolve', `The name ${host} has no address; check its spelling.`, { cause });
  }
  throw new UnavailableError('egress_resolve', `The name ${host} has no address; check its spelling.`);
}

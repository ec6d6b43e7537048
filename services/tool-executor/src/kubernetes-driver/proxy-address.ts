import { lookup } from 'node:dns/promises';
import { UnavailableError } from '@margay/errors';

/** How sandboxes call the egress proxy: they have no name servers, so their table of hosts says where it is. */
export const PROXY_NAME = 'egress';

export interface ProxyAddress {
  /** Of its Service, which stays the same for the Service's life. */
  ip: string;
  port: number;
}

/** @throws UnavailableError `egress_unknown` */
export async function proxyAddress(address: string | undefined): Promise<ProxyAddress | undefined> {
  if (address === undefined) return undefined;
  const separator = address.lastIndexOf(':');
  try {
    const { address: ip } = await lookup(address.slice(0, separator));
    return { ip, port: Number(address.slice(separator + 1)) };
  } catch (cause) {
    throw new UnavailableError('egress_unknown', `The egress proxy ${address} has no address; is its Service there?`, {
      cause,
    });
  }
}

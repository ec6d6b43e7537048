import { BlockList, isIP } from 'node:net';
import { matchesHost } from '@margay/contracts';
import { addCidr, type EgressSettings } from '../policy/egress-policy';

/** IPv4 that is not public: IANA's registry of special addresses, multicast, reserved. */
const SPECIAL_V4 = [
  '0.0.0.0/8',
  '10.0.0.0/8',
  '100.64.0.0/10',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '172.16.0.0/12',
  '192.0.0.0/24',
  '192.0.2.0/24',
  '192.88.99.0/24',
  '192.168.0.0/16',
  '198.18.0.0/15',
  '198.51.100.0/24',
  '203.0.113.0/24',
  '224.0.0.0/3',
];
/** All IPv6 that is public lies here: neither mapped, translated, local nor multicast addresses do. */
const PUBLIC_V6 = '2000::/3';
/** … except protocol assignments and tunnels (with Teredo), documentation, and 6to4, which wraps IPv4. */
const SPECIAL_V6 = ['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20'];

const listOf = (cidrs: readonly string[]): BlockList => {
  const list = new BlockList();
  for (const cidr of cidrs) addCidr(list, cidr);
  return list;
};

const special = listOf([...SPECIAL_V4, ...SPECIAL_V6]);
const publicV6 = listOf([PUBLIC_V6]);

export function isPublic(address: string): boolean {
  const family = isIP(address);
  // A zone names an interface of this machine.
  if (family === 0 || address.includes('%')) return false;
  if (family === 4) return !special.check(address, 'ipv4');
  return publicV6.check(address, 'ipv6') && !special.check(address, 'ipv6');
}

/** Which addresses a name may stand for. */
export class AddressGuard {
  private readonly cluster: BlockList;
  private readonly exceptions: { host: string; ports: readonly number[]; list: BlockList }[];

  constructor(settings: EgressSettings) {
    this.cluster = listOf(settings.clusterCidrs);
    this.exceptions = settings.private.map(({ host, cidr, ports }) => ({ host, ports, list: listOf([cidr]) }));
  }

  /** Whether the operator made an exception for this name, and so trusts it. */
  isExcepted(host: string, port: number): boolean {
    return this.exceptions.some((exception) => exception.ports.includes(port) && matchesHost(exception.host, host));
  }

  accepts(host: string, port: number, address: string): boolean {
    const type = isIP(address) === 4 ? 'ipv4' : 'ipv6';
    if (isPublic(address) && !this.cluster.check(address, type)) return true;
    if (isIP(address) === 0 || address.includes('%')) return false;
    return this.exceptions.some(
      (exception) =>
        exception.ports.includes(port) && matchesHost(exception.host, host) && exception.list.check(address, type),
    );
  }
}

import { isIP, type BlockList } from 'node:net';
import { EgressMode, EgressPolicy, HostPattern, HostPort } from '@margay/contracts';
import { z } from 'zod';

const Cidr = z.string().refine(isCidr, 'must be an address, a slash and a number of bits');

/** An address of the operator's that is not public and may be reached under this name. */
export const PrivateHost = z.strictObject({ host: HostPattern, cidr: Cidr, ports: z.array(HostPort).min(1).max(50) });
export type PrivateHost = z.infer<typeof PrivateHost>;

/** The operator's file: who may reach what from this machine. */
export const EgressSettings = z.strictObject({
  /** No policy gets wider than this. */
  maxMode: EgressMode.default('allowlist'),
  private: z.array(PrivateHost).max(200).default([]),
  /** Public addresses that belong to the cluster, and are refused like private ones. */
  clusterCidrs: z.array(Cidr).max(200).default([]),
  /** For tenants without one of their own. */
  policy: EgressPolicy.optional(),
  tenants: z.record(z.string(), EgressPolicy).default({}),
});
export type EgressSettings = z.infer<typeof EgressSettings>;

/** What holds where nothing was said. */
export const NOTHING: EgressPolicy = EgressPolicy.parse({ mode: 'none' });

function isCidr(text: string): boolean {
  const [address = '', bits = '', ...rest] = text.split('/');
  const family = isIP(address);
  if (family === 0 || rest.length > 0 || !/^\d{1,3}$/.test(bits)) return false;
  return Number(bits) <= (family === 4 ? 32 : 128);
}

export function addCidr(list: BlockList, cidr: string): void {
  const [address = '', bits] = cidr.split('/');
  list.addSubnet(address, Number(bits), isIP(address) === 4 ? 'ipv4' : 'ipv6');
}

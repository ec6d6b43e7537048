import { isIP, type BlockList } from 'node:net';
import { z } from 'zod';
import { isHostPattern } from './host-name';

/** From narrow to wide. */
export const MODES = ['none', 'allowlist', 'public'] as const;
export const EgressMode = z.enum(MODES);
export type EgressMode = z.infer<typeof EgressMode>;

const HostPattern = z
  .string()
  .transform((text) => text.toLowerCase())
  .refine(isHostPattern, 'must be the name of a host, or *. and a name');
const Port = z.number().int().min(1).max(65_535);
const Cidr = z.string().refine(isCidr, 'must be an address, a slash and a number of bits');
const Names = z.array(z.string().min(1).max(128)).min(1).max(200);

export const EgressRule = z
  .strictObject({
    id: z.string().regex(/^[\w.-]{1,64}$/),
    hosts: z.array(HostPattern).min(1).max(500),
    ports: z.array(Port).min(1).max(50).default([443]),
    /** Requests must be readable for the rule: plain HTTP today. */
    intercept: z.boolean().default(false),
    methods: z.array(z.string().regex(/^[A-Z]{1,20}$/)).min(1).max(20).optional(), // prettier-ignore
    paths: z.array(z.string().regex(/^\//).max(500)).min(1).max(200).optional(),
    projects: Names.optional(),
    classes: Names.optional(),
  })
  .refine((rule) => rule.intercept || (rule.methods === undefined && rule.paths === undefined), {
    error: 'methods and paths need intercept: true, because encrypted requests cannot be read',
  });
export type EgressRule = z.infer<typeof EgressRule>;

const whole = (fallback: number) => z.number().int().min(1).default(fallback);

export const EgressLimits = z.strictObject({
  requestsPerSecond: whole(50),
  connections: whole(200),
  perSandbox: whole(50),
  bytesPerDay: whole(53_687_091_200),
  responseBytes: whole(2_147_483_648),
  idleSeconds: whole(60),
});
export type EgressLimits = z.infer<typeof EgressLimits>;

/** What one tenant may reach. */
export const EgressPolicy = z.strictObject({
  mode: EgressMode.default('allowlist'),
  rules: z
    .array(EgressRule)
    .max(500)
    .default([])
    .refine((rules) => new Set(rules.map(({ id }) => id)).size === rules.length, 'two rules have the same id'),
  limits: EgressLimits.prefault({}),
});
export type EgressPolicy = z.infer<typeof EgressPolicy>;

/** An address of the operator's that is not public and may be reached under this name. */
export const PrivateHost = z.strictObject({ host: HostPattern, cidr: Cidr, ports: z.array(Port).min(1).max(50) });
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

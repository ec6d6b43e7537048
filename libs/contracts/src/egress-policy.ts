import { z } from 'zod';

/** From narrow to wide. */
export const EGRESS_MODES = ['none', 'allowlist', 'public'] as const;
export const EgressMode = z.enum(EGRESS_MODES);
export type EgressMode = z.infer<typeof EgressMode>;

const MAX_HOST_LENGTH = 253;
/** Labels of letters, digits, hyphens and underscores; the last one is no number, or it would be an address. */
const HOST_NAME = /^(?:[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?\.)*[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?$/;

/** Whether it is the one spelling of a host's name: small letters, punycode, no dot at the end. */
export function isHostName(text: string): boolean {
  return text.length <= MAX_HOST_LENGTH && HOST_NAME.test(text);
}

/** `*.example.com` stands for every name below example.com, at any depth, but not for example.com. */
export function isHostPattern(text: string): boolean {
  return isHostName(text.startsWith('*.') ? text.slice(2) : text);
}

export function matchesHost(pattern: string, host: string): boolean {
  return pattern.startsWith('*.') ? host.endsWith(pattern.slice(1)) : host === pattern;
}

export const HostPattern = z
  .string()
  .toLowerCase()
  .refine(isHostPattern, 'must be the name of a host, or *. and a name');
export const HostPort = z.number().int().min(1).max(65_535);
/** Stars and question marks alone mean something in patterns of paths, see docs/egress.md. */
const PathPattern = z
  .string()
  .regex(/^\//)
  .max(500)
  .refine((text) => !/[{}[\]\\]|[?*+@!]\(/.test(text), 'knows *, ? and ** as a step, no other patterns');
const Names = z.array(z.string().min(1).max(128)).min(1).max(200);

/** Headers that frame a message, name its host or belong to the proxy; no credential goes there. */
const NO_CREDENTIAL = /^(host|content-length|transfer-encoding|connection|upgrade|te|trailer|expect|proxy-.*)$/i;

export const EgressInjection = z
  .strictObject({
    /** Name of a secret; absent: the git account with the longest prefix of the repository's address. */
    credential: z
      .string()
      .regex(/^[\w.-]{1,64}(\/[\w.-]{1,64})?$/, 'must be the name of a secret')
      .optional(),
    as: z
      .string()
      .regex(
        /^(basic|bearer|header:[\w!#$%&'*+.^`|~-]{1,64}|query:[\w.~-]{1,64})$/,
        'must be basic, bearer, header:<name> or query:<name>',
      )
      .refine((as) => !as.startsWith('header:') || !NO_CREDENTIAL.test(as.slice(7)), 'is no header for a credential'),
    /** Whether git may push. */
    push: z.boolean().default(false),
  })
  .refine(({ credential, as }) => credential !== undefined || as === 'basic', {
    error: 'without the name of a credential, git accounts are meant: as must be basic',
    path: ['as'],
  });
export type EgressInjection = z.infer<typeof EgressInjection>;

export const EgressRule = z
  .strictObject({
    id: z.string().regex(/^[\w.-]{1,64}$/),
    hosts: z.array(HostPattern).min(1).max(500),
    ports: z.array(HostPort).min(1).max(50).default([443]),
    /** Encrypted requests are read by the proxy, by a certificate of this installation. */
    intercept: z.boolean().default(false),
    methods: z.array(z.string().regex(/^[A-Z]{1,20}$/)).min(1).max(20).optional(), // prettier-ignore
    paths: z.array(PathPattern).min(1).max(200).optional(),
    inject: EgressInjection.optional(),
    projects: Names.optional(),
    classes: Names.optional(),
  })
  .refine(({ intercept, methods, paths, inject }) => intercept || [methods, paths, inject].every((key) => !key), {
    error: 'methods, paths and inject need intercept: true, because encrypted requests cannot be read',
    path: ['intercept'],
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

/** What the sandboxes of one tenant may reach (cluster §1.10). */
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

import { isoMicros, type secretsPb } from '@margay/contracts';
import { z } from 'zod';

const Scope = z.enum(['tenant', 'personal']).default('tenant').describe('of the tenant, or your own');

export const ScopeQuery = z.object({ scope: Scope });

const Git = z.strictObject({
  host: z.string(),
  path_prefix: z.string().default('').describe('`team` covers `team` and `team/site`'),
  username: z.string().default('').describe('default: git'),
});

export const PutBody = z.strictObject({
  value: z.string().describe('1 to 32768 bytes; of kind git the token'),
  kind: z.enum(['opaque', 'git']).default('opaque'),
  uses: z
    .array(z.string())
    .default([])
    .describe('egress, git, hook, mail, search, provider:<name>, mcp:<name>, channel:<name>'),
  hosts: z.array(z.string()).default([]).describe('where it may be sent to: names, or `*.` and a name'),
  git: Git.optional(),
  expires_at: z.iso.datetime({ offset: true }).nullish(),
});
export type PutBody = z.infer<typeof PutBody>;

export const SecretView = z.object({
  name: z.string(),
  scope: z.enum(['tenant', 'personal']),
  kind: z.enum(['opaque', 'git']),
  uses: z.array(z.string()),
  hosts: z.array(z.string()),
  git: z.object({ host: z.string(), path_prefix: z.string(), username: z.string() }).nullable(),
  rev: z.number().int(),
  fingerprint: z.string().describe('equal for equal values'),
  expires_at: z.string().nullable(),
  updated_by: z.string(),
  updated_at: z.string(),
  last_used_at: z.string().nullable().describe('written once a minute'),
});
export const SecretList = z.object({ secrets: z.array(SecretView) });

/** Everything about a secret but its value, which no service tells the gateway. */
export function viewOf(secret: secretsPb.SecretInfo): z.infer<typeof SecretView> {
  const { name, uses, hosts, rev, fingerprint, git } = secret;
  return {
    name,
    scope: secret.scope === 'personal' ? 'personal' : 'tenant',
    kind: secret.kind === 'git' ? 'git' : 'opaque',
    uses,
    hosts,
    git: git ? { host: git.host, path_prefix: git.pathPrefix, username: git.username } : null,
    rev,
    fingerprint,
    expires_at: textOf(secret.expiresAt),
    updated_by: secret.updatedBy,
    updated_at: textOf(secret.updatedAt) ?? '',
    last_used_at: textOf(secret.lastUsedAt),
  };
}

const textOf = (date: Date | undefined): string | null => (date ? isoMicros(date.getTime() * 1_000) : null);

import type { Principal } from '@margay/contracts';
import { z } from 'zod';
import { ALL_SCOPES, scopesOf } from './scopes';

export const Identity = z.object({
  authenticated: z.boolean(),
  auth_enabled: z.boolean(),
  subject: z.string(),
  kind: z.enum(['service', 'user']),
  display: z.string(),
  email: z.string().nullable(),
  email_verified: z.boolean(),
  roles: z.array(z.string()),
  teams: z.array(z.string()),
  avatar: z.object({ picture_url: z.string().nullable(), gravatar_url: z.string().nullable() }),
  auth_method: z.object({ kind: z.string(), issuer: z.string().nullable() }),
  scopes: z.array(z.string()).nullable(),
  permissions: z.array(z.string()),
});

/**
 * Without sign-in every deployment answers for itself: whoever has a key may try everything, so that a console hides no
 * control. With a key it is that key's principal. Owners are called admins, as the reference knows no others.
 */
export function presentIdentity(principal: Principal | undefined): z.infer<typeof Identity> {
  const isAdmin = !principal || ['admin', 'owner', 'operator'].includes(principal.role);
  const isUser = principal?.principal.startsWith('user:') ?? false;
  return {
    authenticated: true,
    auth_enabled: false,
    subject: principal?.principal ?? 'svc:legacy',
    kind: isUser ? 'user' : 'service',
    display: isUser ? (principal?.principal.slice('user:'.length) ?? '') : 'API key',
    email: null,
    email_verified: false,
    roles: [isAdmin ? 'admin' : (principal?.role ?? 'admin')],
    teams: [],
    avatar: { picture_url: null, gravatar_url: null },
    auth_method: { kind: 'none', issuer: null },
    scopes: principal?.scopes ?? null,
    permissions: principal ? scopesOf(principal) : ALL_SCOPES.filter((scope) => !scope.startsWith('platform.')),
  };
}

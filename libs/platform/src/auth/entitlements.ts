import type { Principal } from '@margay/contracts';

export type TokenKind = 'principal' | 'run-grant' | 'sandbox-grant' | 'ticket';

/** Services that may sign a grant of each kind. */
const GRANT_ISSUERS: Record<Exclude<TokenKind, 'principal'>, string> = {
  'run-grant': 'session',
  'sandbox-grant': 'tool-executor',
  ticket: 'gateway',
};

/** What each service may assert about who acts; all others only themselves. */
const PRINCIPAL_ISSUERS: Record<string, (principal: string) => boolean> = {
  gateway: (principal) => !principal.startsWith('system:'),
  channel: (principal) => principal.startsWith('user:') || principal.startsWith('svc:channel-'),
  session: (principal) => principal.startsWith('system:'),
};

/** Only these may lend the platform-wide role; a stolen key of any other service cannot. */
const OPERATOR_ISSUERS = new Set(['gateway', 'session']);

export function mayIssueGrant(issuer: string, kind: Exclude<TokenKind, 'principal'>): boolean {
  return GRANT_ISSUERS[kind] === issuer;
}

export function mayAssert(issuer: string, { principal, role }: Pick<Principal, 'principal' | 'role'>): boolean {
  if (role === 'operator' && !OPERATOR_ISSUERS.has(issuer)) return false;
  return principal === `system:${issuer}` || PRINCIPAL_ISSUERS[issuer]?.(principal) === true;
}

/** The principal of a service acting for itself inside a tenant. */
export function systemPrincipal(service: string, tenantId: string): Principal {
  return { v: 1, iss: service, tenantId, principal: `system:${service}`, role: 'member', scopes: null };
}

import type { Principal } from '@margay/contracts';
import { NotFoundError } from '@margay/errors';
import type { Head } from '@margay/log';

/**
 * Whether a principal may see and drive a session. No access looks like absence, for foreign and private sessions alike.
 */
export function mayAccess(principal: Principal, session: { tenantId: string; owner: string }): boolean {
  if (session.tenantId !== principal.tenantId) return false;
  if (seesAllSessions(principal)) return true;
  return session.owner === principal.principal;
}

export function seesAllSessions({ role, principal }: Principal): boolean {
  return role === 'admin' || role === 'owner' || role === 'operator' || principal.startsWith('system:');
}

/** @throws NotFoundError `session_not_found` */
export function requireAccess(principal: Principal, head: Head): void {
  if (head.c === 0 || !mayAccess(principal, head)) throw sessionNotFound(head.sessionId);
}

export function sessionNotFound(sessionId: string): Error {
  return new NotFoundError('session_not_found', `session ${sessionId} not found`);
}

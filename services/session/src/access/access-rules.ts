import type { Principal } from '@margay/contracts';
import { NotFoundError, PermissionDeniedError } from '@margay/errors';
import { isHalfMade, type Head } from '@margay/log';

/**
 * Whether a principal may see and drive a session. No access looks like absence, for foreign and private sessions alike.
 */
export function mayAccess(principal: Principal, session: { tenantId: string; owner: string }): boolean {
  if (session.tenantId !== principal.tenantId) return false;
  return session.owner === principal.principal || seesAllSessions(principal);
}

export function seesAllSessions({ role, principal, scopes }: Principal): boolean {
  if (principal.startsWith('system:')) return true;
  const isGranted = scopes === null || scopes.includes('sessions.read_all') || scopes.includes('sessions.*');
  return isGranted && (role === 'admin' || role === 'owner' || role === 'operator');
}

/** @throws NotFoundError `session_not_found` */
export function requireAccess(principal: Principal, head: Head): void {
  if (head.c === 0 || isHalfMade(head) || !mayAccess(principal, head)) throw sessionNotFound(head.sessionId);
}

/** Viewers look on; everybody else may create and drive what he has access to. @throws PermissionDeniedError */
export function requireDriver({ role }: Principal, scope: 'sessions.create' | 'sessions.interact'): void {
  if (role === 'viewer')
    throw new PermissionDeniedError('permission_denied', `this needs the scope ${scope}`, { details: { scope } });
}

export function sessionNotFound(sessionId: string): Error {
  return new NotFoundError('session_not_found', `session ${sessionId} not found`);
}

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

export function seesAllSessions(principal: Principal): boolean {
  if (principal.principal.startsWith('system:')) return true;
  return isGranted(principal, 'sessions.read_all') && isManager(principal);
}

/** Whether its key leaves a scope to a principal, by its name or that of its area (`settings.*`). */
export function isGranted({ scopes }: Principal, scope: string): boolean {
  const area = `${scope.slice(0, scope.indexOf('.'))}.*`;
  return scopes === null || scopes.includes(scope) || scopes.includes(area);
}

export function isManager({ role }: Principal): boolean {
  return role === 'admin' || role === 'owner' || role === 'operator';
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

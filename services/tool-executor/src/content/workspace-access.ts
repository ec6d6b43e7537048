import type { Principal } from '@margay/contracts';
import { FailedPreconditionError, NotFoundError, PermissionDeniedError } from '@margay/errors';
import type { WorkspaceDocument } from './workspace-document';

type Owned = Pick<WorkspaceDocument, 'tenantId' | 'key' | 'owner' | 'state'>;

/** Those of projects are everybody's in the tenant; those of sessions are their owner's and the administrators'. */
export function mayKnow(principal: Principal, row: Owned): boolean {
  if (row.tenantId !== principal.tenantId || row.state === 'deleted') return false;
  return !row.key.startsWith('s/') || row.owner === principal.principal || seesAll(principal);
}

export function seesAll({ role, scopes, principal }: Principal): boolean {
  if (principal.startsWith('system:')) return true;
  const isGranted = scopes === null || ['sessions.read_all', 'sessions.*'].some((scope) => scopes.includes(scope));
  return isGranted && (role === 'admin' || role === 'owner' || role === 'operator');
}

/** Whoever it belongs to, and administrators. @throws PermissionDeniedError */
export function requireOwner(principal: Principal, row: Owned): void {
  if (principal.role !== 'viewer' && (row.owner === principal.principal || seesAll(principal))) return;
  throw denied('projects.admin');
}

/** @throws PermissionDeniedError */
export function requireAdministrator(principal: Principal): void {
  if (!seesAll(principal)) throw denied('projects.admin');
}

/** What would take files away that are to stay. @throws FailedPreconditionError `legal_hold` */
export function refuseHeld({ legalHold }: Pick<WorkspaceDocument, 'legalHold'>): void {
  if (legalHold !== true) return;
  throw new FailedPreconditionError('legal_hold', 'The workspace is held; take the legal hold off first.');
}

/** Unknown, foreign and private ones are not told apart. */
export function workspaceNotFound(id: string): Error {
  return new NotFoundError('workspace_not_found', `workspace ${id.slice(0, 64)} not found`);
}

function denied(scope: string): Error {
  return new PermissionDeniedError('permission_denied', `this needs the scope ${scope}`, { details: { scope } });
}

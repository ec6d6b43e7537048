import type { Principal, Role } from '@margay/contracts';
import { PermissionDeniedError } from '@margay/errors';

const ROLES: Record<'settings.read' | 'settings.write', ReadonlySet<Role>> = {
  'settings.read': new Set(['member', 'admin', 'owner', 'operator']),
  'settings.write': new Set(['admin', 'owner', 'operator']),
};

/** @throws PermissionDeniedError `permission_denied` */
export function requireSetting({ principal, role, scopes }: Principal, scope: keyof typeof ROLES): void {
  const isScoped = scopes === null || scopes.includes(scope) || scopes.includes('settings.*');
  if (isScoped && ROLES[scope].has(role) && !principal.startsWith('system:')) return;
  throw new PermissionDeniedError('permission_denied', `this needs the scope ${scope}`, { details: { scope } });
}

/** @throws PermissionDeniedError `permission_denied` */
export function requireProxy({ principal }: Principal): void {
  if (principal === 'system:egress') return;
  throw new PermissionDeniedError('permission_denied', 'this is for the egress proxy only');
}

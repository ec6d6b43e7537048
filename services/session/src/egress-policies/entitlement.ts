import type { Principal } from '@margay/contracts';
import { PermissionDeniedError } from '@margay/errors';
import { isGranted, isManager } from '../access/access-rules';

/** @throws PermissionDeniedError `permission_denied` */
export function requireSetting(principal: Principal, scope: 'settings.read' | 'settings.write'): void {
  const isRole = isManager(principal) || (scope === 'settings.read' && principal.role === 'member');
  if (isRole && isGranted(principal, scope) && !principal.principal.startsWith('system:')) return;
  throw new PermissionDeniedError('permission_denied', `this needs the scope ${scope}`, { details: { scope } });
}

/** @throws PermissionDeniedError `permission_denied` */
export function requireProxy({ principal }: Principal): void {
  if (principal === 'system:egress') return;
  throw new PermissionDeniedError('permission_denied', 'this is for the egress proxy only');
}

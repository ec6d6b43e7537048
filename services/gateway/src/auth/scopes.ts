import type { Principal, Role } from '@margay/contracts';
import { PermissionDeniedError } from '@margay/errors';

/** What each role adds to those before it. */
const ADDED = {
  viewer: [
    'sessions.read',
    'projects.read',
    'repositories.read',
    'catalog.read',
    'memories.read',
    'automation.read',
    'tenant.read',
  ],
  member: [
    ...['sessions.create', 'sessions.interact', 'sessions.approve', 'sessions.share', 'sessions.export'],
    ...[
      'projects.write',
      'repositories.write',
      'memories.write',
      'automation.write',
      'workspace.use',
      'personal.manage',
    ],
    ...[
      'settings.read',
      'budgets.read',
      'usage.read',
      'members.read',
      'keys.mint_own',
      'kernel.use',
      'lab.use',
      'media.use',
    ],
  ],
  admin: [
    ...['sessions.read_all', 'sessions.admin', 'projects.admin', 'catalog.write', 'secrets.manage', 'channels.manage'],
    ...[
      'settings.write',
      'models.manage',
      'budgets.write',
      'members.manage',
      'keys.admin',
      'audit.read',
      'breakers.reset',
    ],
  ],
  owner: ['tenant.admin'],
  operator: ['platform.admin'],
} as const satisfies Record<Role, readonly string[]>;

export type Scope = (typeof ADDED)[Role][number];

const LADDER: readonly Role[] = ['viewer', 'member', 'admin', 'owner', 'operator'];
const BY_ROLE = new Map(
  LADDER.map((role, rung) => [role, new Set<Scope>(LADDER.slice(0, rung + 1).flatMap((lower) => [...ADDED[lower]]))]),
);

/** Every scope there is, in the order of the table. */
export const ALL_SCOPES: readonly Scope[] = LADDER.flatMap((role) => [...ADDED[role]]);

const SERVICE_LACKS = /^(members\.|tenant\.|keys\.admin$)/;

/** Scopes that the principal's role gives and its key does not take away. */
export function scopesOf(principal: Principal): Scope[] {
  return [...(BY_ROLE.get(principal.role) ?? [])].filter((scope) => isGranted(principal, scope));
}

/** Throws PERMISSION_DENIED `permission_denied` naming the scope. */
export function requireScope(principal: Principal, scope: Scope): void {
  if (BY_ROLE.get(principal.role)?.has(scope) && isGranted(principal, scope)) return;
  throw new PermissionDeniedError('permission_denied', `this needs the scope ${scope}`, { details: { scope } });
}

function isGranted(principal: Principal, scope: Scope): boolean {
  if (principal.principal.startsWith('svc:') && SERVICE_LACKS.test(scope)) return false;
  const area = `${scope.slice(0, scope.indexOf('.'))}.*`;
  return principal.scopes === null || principal.scopes.includes(scope) || principal.scopes.includes(area);
}

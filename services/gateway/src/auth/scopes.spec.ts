import type { Principal, Role } from '@margay/contracts';
import { requireScope, scopesOf, type Scope } from './scopes';

const principal = (role: Role, overrides: Partial<Principal> = {}): Principal => ({
  v: 1,
  iss: 'gateway',
  tenantId: 't',
  principal: 'user:ada',
  role,
  scopes: null,
  ...overrides,
});
const may = (who: Principal, scope: Scope) => {
  try {
    requireScope(who, scope);
    return true;
  } catch {
    return false;
  }
};

describe('scopes', () => {
  it.each([
    ['viewer', ['sessions.read', 'catalog.read'], ['sessions.create', 'usage.read']],
    ['member', ['sessions.interact', 'sessions.read', 'members.read'], ['sessions.admin', 'keys.admin']],
    ['admin', ['keys.admin', 'sessions.read_all', 'sessions.create'], ['tenant.admin']],
    ['owner', ['tenant.admin', 'breakers.reset'], ['platform.admin']],
    ['operator', ['platform.admin', 'sessions.read'], []],
  ] as const)('of a %s hold its column and those before it', (role, granted, refused) => {
    for (const scope of granted) expect([scope, may(principal(role), scope)]).toEqual([scope, true]);
    for (const scope of refused) expect([scope, may(principal(role), scope)]).toEqual([scope, false]);
  });

  it('of a key narrow the role and never widen it', () => {
    const narrowed = principal('viewer', { scopes: ['sessions.*', 'keys.admin'] });
    expect(scopesOf(narrowed)).toEqual(['sessions.read']);
    expect(may(narrowed, 'catalog.read')).toBe(false);
  });

  it('of service accounts lack the management of people and keys', () => {
    const service = principal('owner', { principal: 'svc:ci' });
    for (const scope of ['members.read', 'members.manage', 'keys.admin', 'tenant.admin'] as const)
      expect(may(service, scope)).toBe(false);
    expect(may(service, 'keys.mint_own')).toBe(true);
  });

  it('name what is missing', () => {
    const refusal = expect.objectContaining({ reason: 'permission_denied', details: { scope: 'sessions.create' } });
    expect(() => requireScope(principal('viewer'), 'sessions.create')).toThrow(refusal);
  });
});

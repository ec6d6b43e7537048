import type { accessPb } from '@margay/contracts';
import { PermissionDeniedError } from '@margay/errors';
import type { GrpcHandlers } from '@margay/platform';
import { requireOperator, type AccessService } from './access.service';
import type { TenantsService } from './tenants.service';

export function accessHandlers(
  access: AccessService,
  tenants: TenantsService,
): GrpcHandlers<typeof accessPb.AccessDefinition> {
  return {
    async authenticate({ keyId, secretSha256 }, context) {
      if (context.principal().principal !== 'system:gateway')
        throw new PermissionDeniedError('gateway_only', 'only the gateway authenticates keys');
      const { scopes, ...identity } = await access.authenticate(keyId, secretSha256);
      return { ...identity, scopes: scopes ?? [], allScopes: scopes === null };
    },
    async createTenant({ slug, name }, context) {
      requireOperator(context.principal().role);
      return { tenantId: await access.createTenant(slug, name) };
    },
    createKey({ tenantId, label, role }, context) {
      requireOperator(context.principal().role);
      return access.createKey(tenantId, label, role);
    },
    async getTenant({ tenant }, context) {
      return { tenantJson: JSON.stringify(await tenants.get(context.principal(), tenant)) };
    },
    async changeTenant({ tenant, changeJson }, context) {
      return { tenantJson: JSON.stringify(await tenants.change(context.principal(), tenant, changeJson)) };
    },
  };
}

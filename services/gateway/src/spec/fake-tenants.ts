import { TenantChange, type accessPb, type Tenant } from '@margay/contracts';
import { NotFoundError } from '@margay/errors';
import type { GrpcHandlers } from '@margay/platform';

type Handlers = Pick<GrpcHandlers<typeof accessPb.AccessDefinition>, 'getTenant' | 'changeTenant'>;

/** The one tenant that session would keep. */
export class FakeTenants {
  tenant: Tenant = {
    id: 'default',
    slug: 'default',
    name: 'Default',
    state: 'active',
    weight: null,
    sandbox_class: null,
    ceilings: { concurrent_runs: null, allowed_classes: null },
  };

  handlers(): Handlers {
    const found = async (named: string): Promise<Tenant> => {
      if (named !== this.tenant.id) throw new NotFoundError('tenant_not_found', `tenant ${named} not found`);
      return Promise.resolve(this.tenant);
    };
    return {
      getTenant: async ({ tenant }) => ({ tenantJson: JSON.stringify(await found(tenant)) }),
      changeTenant: async ({ tenant, changeJson }) => {
        const { ceilings, ...change } = TenantChange.parse(JSON.parse(changeJson));
        const before = await found(tenant);
        this.tenant = { ...before, ...change, ceilings: { ...before.ceilings, ...ceilings } };
        return { tenantJson: JSON.stringify(this.tenant) };
      },
    };
  }
}

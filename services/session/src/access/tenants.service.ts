import { TenantChange, type Principal, type Tenant } from '@margay/contracts';
import { InvalidArgumentError, NotFoundError } from '@margay/errors';
import type { SandboxIsolation } from '../projects/sandbox-isolation';
import type { TenantRow } from './access.repository';
import { requireOperator, type AccessService } from './access.service';

/** What a tenant is and may have, as its own people see it and the operator changes it. */
export class TenantsService {
  constructor(
    private readonly access: Pick<AccessService, 'tenant' | 'changeTenant'>,
    private readonly offered: Pick<SandboxIsolation, 'offers'>,
  ) {}

  /** @throws NotFoundError `tenant_not_found`, also for those of others */
  async get({ tenantId, role }: Principal, named: string): Promise<Tenant> {
    const row = await this.access.tenant(named);
    if (row._id !== tenantId && role !== 'operator')
      throw new NotFoundError('tenant_not_found', `tenant ${named} not found`);
    return tenantOf(row);
  }

  /**
   * @throws PermissionDeniedError `platform_operator_only`; NotFoundError `tenant_not_found`; InvalidArgumentError
   *   `bad_request`, `sandbox_class_unknown`
   */
  async change(principal: Principal, named: string, json: string): Promise<Tenant> {
    requireOperator(principal.role);
    const { weight, sandbox_class: sandboxClass, ceilings = {} } = changeIn(json);
    const { concurrent_runs: concurrentRuns, allowed_classes: allowedClasses } = ceilings;
    for (const name of new Set([sandboxClass ?? [], allowedClasses ?? []].flat())) await this.requireOffered(name);
    const { _id } = await this.access.tenant(named);
    await this.access.changeTenant(_id, { weight, sandboxClass, concurrentRuns, allowedClasses });
    return tenantOf(await this.access.tenant(_id));
  }

  private async requireOffered(name: string): Promise<void> {
    const offered = await this.offered.offers(name);
    if (offered === true) return;
    const message = `there is no sandbox class '${name}' here; there are: ${offered.join(', ')}`;
    throw new InvalidArgumentError('sandbox_class_unknown', message);
  }
}

function changeIn(json: string): TenantChange {
  const parsed = TenantChange.safeParse(JSON.parse(json));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  throw new InvalidArgumentError('bad_request', `${issue?.path.join('.') ?? ''}: ${issue?.message ?? 'invalid'}`);
}

function tenantOf({ _id, slug, name, state, weight, sandboxClass, ceilings }: TenantRow): Tenant {
  return {
    id: _id,
    slug,
    name,
    state,
    weight: weight ?? null,
    sandbox_class: sandboxClass ?? null,
    ceilings: {
      concurrent_runs: ceilings?.concurrentRuns ?? null,
      allowed_classes: ceilings?.allowedClasses ?? null,
    },
  };
}

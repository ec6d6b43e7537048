import { Controller, Param } from '@nestjs/common';
import { Tenant, TenantChange } from '@margay/contracts';
import type { Caller } from '../auth/admission';
import { Backends } from '../backends';
import { Answer } from '../http/answer';
import { Operation } from '../http/operation';
import { FromBody, FromCaller } from '../http/parameters';

const OF_TENANTS = {
  service: 'session',
  family: 'margay',
  errors: 'envelope',
  path: '/api/tenants/{tenant}',
} as const;
const PATH = { tenant: '{tenant}' };

/** What a tenant is and may have. */
@Controller()
export class TenantController {
  constructor(private readonly backends: Backends) {}

  @Operation({
    ...OF_TENANTS,
    method: 'GET',
    scope: 'tenant.read',
    summary: "What a tenant is and may have; others' are the platform operator's alone",
    responses: { 200: { description: 'the tenant', schema: Tenant } },
    sample: { path: PATH, status: 200 },
  })
  async get(@FromCaller() { call }: Caller, @Param('tenant') tenant: string): Promise<Answer> {
    return Answer.json((await this.backends.access.getTenant({ tenant }, call)).tenantJson);
  }

  @Operation({
    ...OF_TENANTS,
    method: 'PATCH',
    scope: 'platform.admin',
    summary: 'Change what a tenant may have: its share of the runners, its classes of sandboxes',
    body: TenantChange,
    responses: { 200: { description: 'the tenant as it is then', schema: Tenant } },
    sample: {
      path: PATH,
      body: { sandbox_class: 'dense', ceilings: { allowed_classes: ['dense', 'strict'] } },
      status: 200,
    },
  })
  async change(
    @FromCaller() { call }: Caller,
    @Param('tenant') tenant: string,
    @FromBody() body: TenantChange,
  ): Promise<Answer> {
    const request = { tenant, changeJson: JSON.stringify(body) };
    return Answer.json((await this.backends.access.changeTenant(request, call)).tenantJson);
  }
}

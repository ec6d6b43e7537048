import { LabelLimit } from './label-limit';

/** Each tenant multiplies the series, so the first ones have a name and all further ones are `other`. */
const TENANTS_MAX = 200;

/** The label `tenant` of metrics, where the operator has switched it on (`MARGAY_METRICS_TENANT_LABEL`); else nothing. */
export class TenantLabel {
  /** To spread into `labelNames`. */
  readonly names: readonly 'tenant'[];
  private readonly known = new LabelLimit(TENANTS_MAX);

  constructor(private readonly isOn: boolean) {
    this.names = isOn ? ['tenant'] : [];
  }

  /** To spread into the labels of an observation. */
  of(tenantId: string): { tenant?: string } {
    return this.isOn ? { tenant: this.known.of(tenantId) } : {};
  }
}

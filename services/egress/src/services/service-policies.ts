import { EgressPolicy } from '@margay/contracts';
import type { EgressSettings } from '../policy/egress-policy';
import type { Verdict } from '../policy/judge';
import type { EgressPolicies } from '../policy/policy-file';

/** What records of services name as their rule. */
const SERVICE_RULE = 'service';
/** Longer than the longest call of a tool may take: a host may think for all of it. */
const IDLE_SECONDS = 900;
/** Of a tenant, at this replica; the rules that bound a sandbox are not for calls that an operator has set up. */
const LIMITS = { requestsPerSecond: 200, connections: 1_000, perSandbox: 1_000, idleSeconds: IDLE_SECONDS };

/** Services reach whatever they name, as far as its addresses are public or the operator has excepted them. */
export class ServicePolicies implements EgressPolicies {
  private readonly policy = EgressPolicy.parse({ mode: 'public', limits: LIMITS });

  constructor(private readonly operator: Pick<EgressPolicies, 'settings' | 'onChange'>) {}

  get settings(): EgressSettings {
    return this.operator.settings;
  }

  policyOf(): EgressPolicy {
    return this.policy;
  }

  judge(): Verdict {
    return { isAllowed: true, rule: SERVICE_RULE, intercept: false };
  }

  onChange(listener: () => void): void {
    this.operator.onChange(listener);
  }
}

import { egressPb } from '@margay/contracts';
import { grpcClient, systemPrincipal, type GrpcClient, type KeyRing, type Logger } from '@margay/platform';

export interface StoredPolicies {
  /** Changes whenever any policy does. */
  mark: string;
  /** As JSON, by tenant; absent: nothing has changed since the mark that was known. */
  policies?: ReadonlyMap<string, string>;
}

/** Where tenants store policies of their own. */
export abstract class PolicySource {
  abstract list(known: string): Promise<StoredPolicies>;
}

const PLATFORM = '_platform';
const TIMEOUT_MS = 5_000;

/** Asks session. */
export class SessionPolicySource extends PolicySource {
  private readonly client: GrpcClient<typeof egressPb.EgressDefinition>;

  constructor(address: string, keys: KeyRing, logger: Logger) {
    super();
    this.client = grpcClient(egressPb.EgressDefinition, address, { keys, logger });
  }

  async list(known: string): Promise<StoredPolicies> {
    const options = { principal: systemPrincipal('egress', PLATFORM), timeoutMs: TIMEOUT_MS };
    const { mark, unchanged, policies } = await this.client.listEgressPolicies({ known }, options);
    if (unchanged) return { mark };
    return { mark, policies: new Map(policies.map(({ tenantId, policyJson }) => [tenantId, policyJson])) };
  }

  close(): void {
    this.client.close();
  }
}

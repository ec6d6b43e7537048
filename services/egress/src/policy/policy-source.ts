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
/** Of each page. */
const TIMEOUT_MS = 5_000;
/** Far below what one message may have, with one more of the largest policies. */
const PAGE_BYTES = 1024 * 1024;

/** Asks session. */
export class SessionPolicySource extends PolicySource {
  private readonly client: GrpcClient<typeof egressPb.EgressDefinition>;

  constructor(address: string, keys: KeyRing, logger: Logger) {
    super();
    this.client = grpcClient(egressPb.EgressDefinition, address, { keys, logger });
  }

  async list(known: string): Promise<StoredPolicies> {
    let page = await this.page({ known, after: '' });
    const { mark, unchanged } = page;
    if (unchanged) return { mark };
    const all = new Map<string, string>();
    for (;;) {
      for (const { tenantId, policyJson } of page.policies) all.set(tenantId, policyJson);
      if (page.next === '') return { mark, policies: all };
      page = await this.page({ known: '', after: page.next });
    }
  }

  close(): void {
    this.client.close();
  }

  private page(request: { known: string; after: string }): Promise<egressPb.ListEgressPoliciesResponse> {
    const options = { principal: systemPrincipal('egress', PLATFORM), timeoutMs: TIMEOUT_MS };
    return this.client.listEgressPolicies({ ...request, pageBytes: PAGE_BYTES }, options);
  }
}

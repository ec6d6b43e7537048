import { EGRESS_MODES, EgressPolicy, subjects, type EgressMode, type Principal } from '@margay/contracts';
import { InvalidArgumentError, NotFoundError, PermissionDeniedError } from '@margay/errors';
import type { Logger, NatsBus } from '@margay/platform';
import { requireRev, REV_ATTEMPTS, revMoved } from '../store/revisions';
import type { EgressPolicyRepository, EgressPolicyRow } from './egress-policy.repository';
import { requireProxy, requireSetting } from './entitlement';

const THE_POLICY = 'the egress policy';
const FAULTS_TOLD = 20;
/** The proxy keeps those of all tenants, and reads several in one message: one tenant must not fill it. */
const POLICY_MAX_BYTES = 64 * 1024;

export type EgressPolicyRows = Pick<EgressPolicyRepository, 'find' | 'add' | 'replace' | 'mark' | 'behind'>;

export interface EgressPoliciesPorts {
  rows: EgressPolicyRows;
  bus: Pick<NatsBus, 'publish'>;
  logger: Logger;
  /** No tenant may have a wider one; the proxy holds to its own copy of this in any case. */
  maxMode: EgressMode;
  now?: () => number;
}

export interface PutPolicy {
  policyJson: string;
  ifRev?: number | undefined;
}

export interface ListPolicies {
  /** The mark of the answer before. */
  known: string;
  /** The tenant behind which a page begins. */
  after: string;
  /** So much of policies, and one more; absent: all of them. */
  pageBytes?: number | undefined;
}

export interface TenantPolicy {
  tenantId: string;
  policyJson: string;
}

export interface PolicyPage {
  /** Empty but in first pages. */
  mark: string;
  policies?: TenantPolicy[];
  /** Behind which more begin. */
  next?: string;
}

/** What tenants say their sandboxes may reach. */
export class EgressPoliciesService {
  private readonly now: () => number;

  constructor(private readonly ports: EgressPoliciesPorts) {
    this.now = ports.now ?? Date.now;
  }

  /** @throws PermissionDeniedError `permission_denied`; NotFoundError `egress_policy_not_found` */
  async get(principal: Principal): Promise<EgressPolicyRow> {
    requireSetting(principal, 'settings.read');
    const row = await this.ports.rows.find(principal.tenantId);
    if (row) return row;
    const message = 'this tenant has stored no egress policy; what the operator has set holds';
    throw new NotFoundError('egress_policy_not_found', message);
  }

  /**
   * @throws PermissionDeniedError `permission_denied`, `setting_locked`; InvalidArgumentError `validation`;
   * AbortedError `rev_moved`
   */
  async put(principal: Principal, request: PutPolicy): Promise<{ row: EgressPolicyRow; isCreated: boolean }> {
    requireSetting(principal, 'settings.write');
    const policy = parsePolicy(request.policyJson);
    this.requireNarrow(policy);
    const { tenantId } = principal;
    for (let attempt = 1; attempt <= REV_ATTEMPTS; attempt += 1) {
      const present = await this.ports.rows.find(tenantId);
      const rev = present?.rev ?? 0;
      requireRev(THE_POLICY, request.ifRev, rev);
      const written = { updatedBy: principal.principal, updatedAt: new Date(this.now()) };
      const row: EgressPolicyRow = { _id: tenantId, tenantId, policy, rev: rev + 1, ...written };
      const isWritten = present ? await this.ports.rows.replace(row, rev) : await this.ports.rows.add(row);
      if (!isWritten) continue;
      this.announce(principal, row);
      return { row, isCreated: !present };
    }
    throw revMoved(THE_POLICY);
  }

  /** Those of all tenants, or one page of them; the mark alone where nothing has changed since `known`. For the proxy. */
  async list(principal: Principal, { known, after, pageBytes }: ListPolicies): Promise<PolicyPage> {
    requireProxy(principal);
    // Read before the policies: one that changes meanwhile is asked for again.
    const mark = after === '' ? await this.ports.rows.mark() : '';
    if (mark !== '' && mark === known) return { mark };
    const policies: TenantPolicy[] = [];
    let left = pageBytes ?? Infinity;
    for await (const { tenantId, policy } of this.ports.rows.behind(after)) {
      const last = policies.at(-1);
      if (left <= 0 && last) return { mark, policies, next: last.tenantId };
      const policyJson = JSON.stringify(policy);
      left -= Buffer.byteLength(policyJson);
      policies.push({ tenantId, policyJson });
    }
    return { mark, policies };
  }

  private requireNarrow({ mode }: EgressPolicy): void {
    const { maxMode } = this.ports;
    if (EGRESS_MODES.indexOf(mode) <= EGRESS_MODES.indexOf(maxMode)) return;
    const details = { setting: 'mode', max: maxMode };
    throw new PermissionDeniedError('setting_locked', `mode: the operator allows ${maxMode} at most`, { details });
  }

  private announce({ tenantId, principal, keyId, requestId }: Principal, { rev }: EgressPolicyRow): void {
    const target = { type: 'egress-policy', rev };
    const audit = { action: 'egress_policy.update', tenantId, principal, keyId, requestId, target };
    this.ports.logger.info({ audit }, 'an egress policy was changed');
    this.ports.bus.publish(subjects.config('egress'), tenantId);
  }
}

/** @throws InvalidArgumentError `validation`, whose details name each faulty key */
function parsePolicy(text: string): EgressPolicy {
  const parsed = EgressPolicy.safeParse(jsonOf(text));
  if (parsed.success) return requireSmall(parsed.data);
  const errors = parsed.error.issues
    .slice(0, FAULTS_TOLD)
    .map(({ path, message, code }) => ({ loc: path.map(String), msg: message, type: code }));
  const [first] = errors;
  const where = first?.loc.join('.') || 'the policy';
  throw new InvalidArgumentError('validation', `${where}: ${first?.msg}`, { details: { errors } });
}

function requireSmall(policy: EgressPolicy): EgressPolicy {
  const bytes = Buffer.byteLength(JSON.stringify(policy));
  if (bytes <= POLICY_MAX_BYTES) return policy;
  const message = `the policy: has ${bytes} bytes with its defaults, more than ${POLICY_MAX_BYTES}; use fewer rules`;
  throw new InvalidArgumentError('validation', message);
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new InvalidArgumentError('validation', 'the policy is not JSON', { cause });
  }
}

import { EgressPolicy, type EgressCaller, type EgressLimits } from '@margay/contracts';
import { UnavailableError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import { NOTHING, type EgressSettings } from './egress-policy';
import { judge, narrower, type Target, type Verdict } from './judge';
import type { EgressPolicies, PolicyFile } from './policy-file';
import type { PolicySource } from './policy-source';

/** Nobody is served until the first answer. */
const UNKNOWN_LOOK_MS = 250;

interface Stored {
  json: string;
  policy: EgressPolicy;
}

/**
 * Policies that tenants have stored, within what the operator's file says: its modes and limits are the most they can
 * have. Who has stored none has what the file says.
 */
export class TenantPolicies implements EgressPolicies {
  private stored?: ReadonlyMap<string, Stored>;
  private mark = '';
  private failure: string | undefined;
  private readonly listeners: (() => void)[] = [];
  private looking: Promise<void> | undefined;
  private timer: NodeJS.Timeout | undefined;
  private isClosed = false;
  private confirmedAt: number;

  constructor(
    private readonly file: PolicyFile,
    private readonly source: PolicySource,
    private readonly logger: Logger,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.confirmedAt = now();
    file.onChange(() => this.tell());
  }

  get settings(): EgressSettings {
    return this.file.settings;
  }

  /** What is wrong with either. */
  get fault(): string | undefined {
    return this.file.fault ?? this.failure;
  }

  /** Whether anything can be allowed. */
  get isKnown(): boolean {
    return this.stored !== undefined;
  }

  /** Since session last said that they are these; before it ever did, since the start. */
  get ageMs(): number {
    return this.now() - this.confirmedAt;
  }

  /** @throws UnavailableError `egress_unavailable` until it is known what tenants have stored */
  policyOf(tenantId: string): EgressPolicy {
    if (!this.stored)
      throw new UnavailableError('egress_unavailable', 'The policies of tenants are not known yet; try again.');
    const base = this.file.policyOf(tenantId);
    const own = this.stored.get(tenantId)?.policy;
    if (!own) return base;
    const pinned = Object.hasOwn(this.settings.tenants, tenantId) ? this.settings.tenants[tenantId] : undefined;
    const mode = pinned ? narrower(own.mode, pinned.mode) : own.mode;
    return { ...own, mode, limits: smaller(own.limits, base.limits) };
  }

  judge(target: Target, caller: EgressCaller): Verdict {
    return judge(this.policyOf(caller.tenantId), this.settings.maxMode, target, caller);
  }

  onChange(listener: () => void): void {
    this.listeners.push(listener);
  }

  watch(everyMs: number): void {
    const look = async (): Promise<void> => {
      await this.refresh();
      if (this.isClosed) return;
      this.timer = setTimeout(() => void look(), this.isKnown ? everyMs : Math.min(everyMs, UNKNOWN_LOOK_MS));
      this.timer.unref();
    };
    void look();
  }

  close(): void {
    this.isClosed = true;
    clearTimeout(this.timer);
  }

  /** Never fails: what was known before holds. */
  refresh(): Promise<void> {
    this.looking ??= this.look().finally(() => (this.looking = undefined));
    return this.looking;
  }

  private async look(): Promise<void> {
    try {
      const { mark, policies } = await this.source.list(this.stored ? this.mark : '');
      if (this.failure !== undefined) this.logger.info('the policies of tenants can be asked for again');
      this.failure = undefined;
      this.confirmedAt = this.now();
      this.mark = mark;
      if (!policies) return;
      this.stored = new Map([...policies].map(([tenantId, json]) => [tenantId, this.read(tenantId, json)]));
      this.tell();
    } catch (error) {
      const holds = this.stored ? 'what was known before holds' : 'nothing is allowed until it does';
      const failure = `session does not say what tenants have stored; ${holds}`;
      if (this.failure === undefined) this.logger.warn({ err: error }, failure);
      this.failure = failure;
    }
  }

  /** One that has not changed is not read again: reading those of all tenants would hold up what is open. */
  private read(tenantId: string, json: string): Stored {
    const known = this.stored?.get(tenantId);
    if (known?.json === json) return known;
    const parsed = EgressPolicy.safeParse(JSON.parse(json));
    if (parsed.success) return { json, policy: parsed.data };
    this.logger.error({ tenantId }, 'a stored egress policy is not understood; nothing is allowed to its tenant');
    return { json, policy: NOTHING };
  }

  private tell(): void {
    if (this.stored) for (const listener of this.listeners) listener();
  }
}

function smaller(one: EgressLimits, other: EgressLimits): EgressLimits {
  const keys = Object.keys(one) as (keyof EgressLimits)[];
  return { ...one, ...Object.fromEntries(keys.map((key) => [key, Math.min(one[key], other[key])])) };
}

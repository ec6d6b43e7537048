import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { EgressCaller, EgressPolicy } from '@margay/contracts';
import { DeadlineExceededError, PermissionDeniedError, UnavailableError, type MargayError } from '@margay/errors';
import { AddressGuard } from '../address/address-guard';
import { dial } from '../address/dial';
import type { Resolve } from '../address/resolver';
import type { EgressRecord } from '../audit/egress-record';
import { Limits, type Lease } from '../limits/limits';
import type { Permission, Refused, Target } from '../policy/judge';
import type { EgressSettings } from '../policy/egress-policy';
import type { EgressPolicies } from '../policy/policy-file';
import { Exchange } from './exchange';

/** On whose behalf somebody asks: a sandbox, or a service that acts for a tenant. */
export interface Caller extends EgressCaller {
  service?: string;
}

/** @throws UnauthenticatedError `egress_identity` */
export type Identify = (request: IncomingMessage) => Promise<Caller>;

export interface GateOptions {
  policies: EgressPolicies;
  identify: Identify;
  resolve: Resolve;
  limits: Limits;
  now: () => number;
  onEnd: (record: EgressRecord) => void;
  onBytes: (direction: 'up' | 'down', bytes: number) => void;
}

const CONNECT_TIMEOUT_MS = 10_000;
const WHY: Readonly<Record<Refused['why'], string>> = {
  mode_none: 'no rule allows it',
  no_rule: 'no rule allows it',
  unreadable: 'its rule needs requests that can be read, and this proxy has no authority (MARGAY_EGRESS_CA_DIR)',
  credential: 'its credential is missing, or not for this use',
  needs_encryption: 'its rule adds a credential, which needs https',
  push: 'its rule lets git fetch, but not push',
};

/** What every request and tunnel passes: who asks, whether the policy, the limits and the addresses allow it. */
export class Gate {
  private guards: Guards;
  private readonly open = new Set<Exchange>();
  private readonly held: Limits;

  constructor(private readonly options: GateOptions) {
    const { policies } = options;
    this.held = new Limits(options.now);
    this.guards = guardsOf(policies.settings);
    policies.onChange(() => {
      this.guards = guardsOf(policies.settings);
      this.cutForbidden();
    });
  }

  get openCount(): number {
    return this.open.size;
  }

  begin(): Exchange {
    const exchange = new Exchange(this.options.now, this.options.onBytes);
    this.open.add(exchange);
    return exchange;
  }

  end(exchange: Exchange, failure: unknown): void {
    this.open.delete(exchange);
    exchange.lease?.leave();
    if (!exchange.isUntold) this.options.onEnd(exchange.record(failure));
  }

  /** @throws UnauthenticatedError `egress_identity`, ResourceExhaustedError `egress_limit` */
  async identify(exchange: Exchange, request: IncomingMessage): Promise<Caller> {
    const caller = await this.options.identify(request);
    this.count(exchange, caller);
    return caller;
  }

  /** @throws ResourceExhaustedError `egress_limit` */
  count(exchange: Exchange, caller: Caller): void {
    exchange.caller = caller;
    exchange.limits = this.policyOf(caller).limits;
    this.options.limits.request(caller, exchange.limits);
  }

  /**
   * An intercepted tunnel, for as long as it is open: as many as connections, and counted apart from those of its requests.
   * @throws ResourceExhaustedError `egress_limit`
   */
  hold(caller: EgressCaller): Lease {
    return this.held.enter(caller, this.policyOf(caller).limits);
  }

  /** What holds for a caller now. */
  policyOf({ tenantId }: EgressCaller): EgressPolicy {
    return this.options.policies.policyOf(tenantId);
  }

  /** @throws PermissionDeniedError `egress_denied` */
  admit(exchange: Exchange, target: Target): Permission {
    const { caller } = exchange;
    if (!caller) throw new PermissionDeniedError('egress_denied', 'The caller is not known.');
    exchange.target = target;
    const verdict = this.options.policies.judge(target, caller);
    if (verdict.rule !== undefined) exchange.rule = verdict.rule;
    if (!verdict.isAllowed) throw refuse(exchange, verdict.why);
    exchange.isPublicOnly = verdict.isPublicOnly === true;
    return verdict;
  }

  /** A connection to the target that was admitted, if the limits and the target's addresses allow it. */
  async connect(exchange: Exchange, target: Target): Promise<Socket> {
    const { caller, limits } = exchange;
    if (!caller || !limits) throw new PermissionDeniedError('egress_denied', 'The caller is not known.');
    exchange.lease = this.options.limits.enter(caller, limits);
    const guard = exchange.isPublicOnly ? this.guards.publicOnly : this.guards.all;
    const dialer = { guard, resolve: this.options.resolve, connectTimeoutMs: CONNECT_TIMEOUT_MS };
    const socket = await dial(dialer, target.host, target.port);
    const idle = new DeadlineExceededError('egress_timeout', `Nothing moved for ${limits.idleSeconds} seconds.`);
    socket.setTimeout(limits.idleSeconds * 1_000, () => {
      exchange.cut(idle);
      socket.destroy();
    });
    socket.on('error', () => undefined); // its end is noticed where it is read
    return socket;
  }

  cutAll(): void {
    for (const exchange of this.open) exchange.cut(new UnavailableError('egress_closing', 'The proxy shuts down.'));
  }

  /** What a new policy no longer allows ends at once; so does a tunnel that has become one to be read. */
  private cutForbidden(): void {
    for (const exchange of this.open) {
      const { target, caller } = exchange;
      if (!target || !caller) continue;
      const verdict = this.options.policies.judge(target, caller);
      if (verdict.isAllowed && !verdict.intercept) continue;
      exchange.cut(new PermissionDeniedError('egress_denied', `${target.host} may no longer be reached.`));
    }
  }
}

interface Guards {
  all: AddressGuard;
  /** Without the operator's exceptions. */
  publicOnly: AddressGuard;
}

const guardsOf = (settings: EgressSettings): Guards => ({
  all: new AddressGuard(settings),
  publicOnly: new AddressGuard({ ...settings, private: [] }),
});

/** Why it is refused, in the words for the client and for the record. */
export function refuse(exchange: Exchange, why: Refused['why']): MargayError {
  exchange.why = why;
  const { host = '', port = 0 } = exchange.target ?? {};
  return new PermissionDeniedError('egress_denied', `${host}:${port} cannot be reached: ${WHY[why]}.`);
}

import type { EgressLimits } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import { decisionOf, type EgressRecord } from '../audit/egress-record';
import { exceeded, type Lease } from '../limits/limits';
import type { Target } from '../policy/judge';
import type { Caller } from './gate';

/** One request or tunnel, from its first byte to its record. */
export class Exchange {
  caller?: Caller;
  target?: Target;
  rule?: string;
  /** Whether it may only go to addresses that are public, not to those that the operator excepted. */
  isPublicOnly = false;
  why?: string;
  /** Of the secret that was added to the request. */
  credential?: string;
  /** Not for the record: what the proxy says of itself, and tunnels whose requests tell for themselves. */
  isUntold = false;
  lease?: Lease;
  limits?: EgressLimits;
  status = 0;
  private bytesUp = 0;
  private bytesDown = 0;
  private readonly cutter = new AbortController();

  constructor(
    private readonly now: () => number,
    private readonly onBytes: (direction: 'up' | 'down', bytes: number) => void,
    private readonly startedAt = now(),
  ) {}

  get signal(): AbortSignal {
    return this.cutter.signal;
  }

  /** Ends it for a reason that its record will tell. */
  cut(reason: Error): void {
    this.cutter.abort(reason);
  }

  readonly countUp = (bytes: number): void => {
    this.bytesUp += bytes;
    this.onBytes('up', bytes);
    this.lease?.spend(bytes);
  };

  readonly countDown = (bytes: number): void => {
    this.bytesDown += bytes;
    this.onBytes('down', bytes);
    const most = this.limits?.responseBytes ?? 0;
    if (this.bytesDown > most) throw exceeded(`more than ${most} bytes in one answer`);
    this.lease?.spend(bytes);
  };

  /** What is known at the end; only reasons of ours tell against it, not a party that hung up. */
  record(error: unknown): EgressRecord {
    const failure = this.signal.aborted ? (this.signal.reason as unknown) : error;
    const reason = isMargayError(failure) ? failure.reason : undefined;
    const { caller, target, rule, why, credential } = this;
    return {
      at: this.startedAt,
      ...(caller && { tenantId: caller.tenantId }),
      ...(caller && (caller.service === undefined ? { sandboxId: caller.sandboxId } : { service: caller.service })),
      ...(caller?.sessionId !== undefined && { sessionId: caller.sessionId }),
      host: target?.host ?? '',
      port: target?.port ?? 0,
      ...target?.request,
      status: this.status,
      bytesUp: this.bytesUp,
      bytesDown: this.bytesDown,
      ms: Math.round(this.now() - this.startedAt),
      ...(rule !== undefined && { rule }),
      ...(credential !== undefined && { credential }),
      decision: decisionOf(reason),
      ...(reason !== undefined && { reason }),
      ...(why !== undefined && { why }),
    };
  }
}

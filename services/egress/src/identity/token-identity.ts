import { createHash } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import type { EgressCaller } from '@margay/contracts';
import { isMargayError, UnauthenticatedError, UnavailableError } from '@margay/errors';
import { LRUCache } from 'lru-cache';
import { AskLimit } from './ask-limit';

/** What somebody shows of himself over a network. */
export interface Claim {
  sandboxId: string;
  token: string;
  sourceAddress: string;
}

/** @throws UnauthenticatedError for a claim that does not hold */
export type ResolveClaim = (claim: Claim) => Promise<EgressCaller>;

/** How a claim was answered; `cached` costs nobody anything. */
export const OUTCOMES = ['cached', 'known', 'unknown', 'limited', 'failed'] as const;
export type Outcome = (typeof OUTCOMES)[number];

interface Answer {
  sandboxId: string;
  caller: Promise<EgressCaller | undefined>;
}

const KNOWN_MS = 60_000;
/** A sandbox may ask at the moment in which it becomes somebody's. */
const UNKNOWN_MS = 250;
const CACHED = 10_000;

/** Callers by proxy user and source address, asked of whoever keeps sandboxes. */
export class TokenIdentity {
  private readonly answers: LRUCache<string, Answer>;
  private readonly limit: AskLimit;

  constructor(
    private readonly resolve: ResolveClaim,
    private readonly count: (outcome: Outcome) => void = () => undefined,
    now: () => number = () => performance.now(),
  ) {
    this.limit = new AskLimit(now);
    this.answers = new LRUCache({ max: CACHED, ttl: KNOWN_MS, perf: { now }, ttlResolution: 0 });
  }

  /** @throws UnauthenticatedError `egress_identity`, UnavailableError `egress_unavailable`, ResourceExhaustedError `egress_limit` */
  async identify(request: Pick<IncomingMessage, 'headers' | 'socket'>): Promise<EgressCaller> {
    const claim = claimOf(request);
    const caller = claim && (await this.callerOf(claim));
    if (caller) return caller;
    throw new UnauthenticatedError('egress_identity', 'The proxy does not know who asks.');
  }

  /** The sandbox has ended or changed: whoever claims to be it is asked for again. */
  forget(sandboxId: string): void {
    for (const [key, answer] of this.answers.entries()) if (answer.sandboxId === sandboxId) this.answers.delete(key);
  }

  /** Some ends may not have been heard. */
  forgetAll(): void {
    this.answers.clear();
  }

  private callerOf(claim: Claim): Promise<EgressCaller | undefined> {
    const key = createHash('sha256').update(JSON.stringify(claim)).digest('base64');
    const known = this.answers.get(key);
    if (known) {
      this.count('cached');
      return known.caller;
    }
    this.requireTurn(claim);
    const answer = { sandboxId: claim.sandboxId, caller: this.ask(claim) };
    this.answers.set(key, answer);
    void answer.caller.then(
      (caller) => caller ?? this.answers.set(key, answer, { ttl: UNKNOWN_MS }),
      () => this.answers.delete(key),
    );
    return answer.caller;
  }

  private requireTurn({ sourceAddress }: Claim): void {
    try {
      this.limit.take(sourceAddress);
    } catch (error) {
      this.count('limited');
      throw error;
    }
  }

  private async ask(claim: Claim): Promise<EgressCaller | undefined> {
    try {
      const caller = await this.resolve(claim);
      this.count('known');
      return caller;
    } catch (cause) {
      const isUnknown = isMargayError(cause) && cause.code === 'UNAUTHENTICATED';
      this.count(isUnknown ? 'unknown' : 'failed');
      if (isUnknown) return undefined;
      throw new UnavailableError('egress_unavailable', 'The proxy cannot find out who asks; try again.', { cause });
    }
  }
}

function claimOf({ headers, socket }: Pick<IncomingMessage, 'headers' | 'socket'>): Claim | undefined {
  const [, encoded] = /^Basic ([A-Za-z0-9+/=]{1,1024})$/i.exec(headers['proxy-authorization'] ?? '') ?? [];
  const [, sandboxId, token] = /^([^:]+):(.+)$/.exec(Buffer.from(encoded ?? '', 'base64').toString()) ?? [];
  // IPv4 reaches a listener of both kinds in a mapped form.
  const sourceAddress = socket.remoteAddress?.replace(/^::ffff:(?=\d+\.)/, '');
  if (sandboxId === undefined || token === undefined || sourceAddress === undefined) return undefined;
  return { sandboxId, token, sourceAddress };
}

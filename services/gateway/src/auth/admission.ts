import type { Principal } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import type { CallOptions } from '@margay/platform';
import type { FastifyRequest } from 'fastify';
import type { GatewayMetrics } from '../metrics';
import { operationOf, type Operation } from '../http/operation';
import type { Authenticator } from './authenticator';
import { credentialOf, notProvided, ticketOf, unauthorized, type Credential } from './credential';
import type { RateLimiter } from './rate-limiter';
import { requireScope } from './scopes';
import type { TicketGrant, Tickets } from './tickets';

/** Who sent a request. */
export interface Caller {
  principal: Principal;
  /** The key, also where a ticket stood for it. */
  credential: Credential;
  /** Set where a ticket stood for the key. */
  ticket?: TicketGrant;
  /** For the clients of services: acts as this principal under the request's id. */
  call: CallOptions;
}

declare module 'fastify' {
  interface FastifyRequest {
    caller?: Caller;
  }
}

/** Runs before a body is read: credential 401, rate 429, scope 403. The object and its own checks come after. */
export class Admission {
  constructor(
    private readonly authenticator: Authenticator,
    private readonly tickets: Tickets,
    private readonly limiter: RateLimiter,
    private readonly metrics: GatewayMetrics,
  ) {}

  async admit(request: FastifyRequest): Promise<void> {
    const operation = operationOf(request);
    if (!operation) return;
    const scope = scopeOf(operation, request.query);
    if (scope === 'public') return;
    const entry = await this.entryOf(request, operation);
    if (!entry && scope === 'optional') return;
    if (!entry) throw notProvided();
    const principal = await this.authenticator.identify(entry.credential);
    request.caller = { ...entry, principal, call: { principal, requestId: request.id } };
    this.limit(principal.tenantId);
    if (scope !== 'any' && scope !== 'optional') requireScope(principal, scope);
  }

  /** The first credential present decides. */
  private async entryOf(
    request: FastifyRequest,
    operation: Operation,
  ): Promise<Pick<Caller, 'credential' | 'ticket'> | undefined> {
    const credential = credentialOf(request);
    if (credential) return { credential };
    const text = ticketOf(request);
    if (text === undefined) return undefined;
    if (!operation.ticket) throw unauthorized();
    const opened = await this.tickets.open(text, operation.ticket);
    return { credential: opened.credential, ticket: opened.grant };
  }

  private limit(tenantId: string): void {
    try {
      this.limiter.take(tenantId);
    } catch (error) {
      if (isMargayError(error)) this.metrics.rateLimited.inc({ scope: 'tenant' });
      throw error;
    }
  }
}

/** A query that says several things is refused by its route: until then it counts as the wider one. */
function scopeOf({ scope, personalScope }: Operation, query: unknown): Operation['scope'] {
  const isPersonal = (query as { scope?: unknown }).scope === 'personal';
  return isPersonal && personalScope !== undefined ? personalScope : scope;
}

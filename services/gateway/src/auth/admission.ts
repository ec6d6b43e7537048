import type { Principal } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import type { CallOptions } from '@margay/platform';
import type { FastifyRequest } from 'fastify';
import type { GatewayMetrics } from '../metrics';
import { operationOf } from '../http/operation';
import type { Authenticator } from './authenticator';
import { credentialOf, notProvided, type Credential } from './credential';
import type { RateLimiter } from './rate-limiter';
import { requireScope } from './scopes';

/** Who sent a request. */
export interface Caller {
  principal: Principal;
  credential: Credential;
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
    private readonly limiter: RateLimiter,
    private readonly metrics: GatewayMetrics,
  ) {}

  async admit(request: FastifyRequest): Promise<void> {
    const scope = operationOf(request)?.scope;
    if (scope === undefined || scope === 'public') return;
    const credential = credentialOf(request);
    if (!credential && scope === 'optional') return;
    if (!credential) throw notProvided();
    const principal = await this.authenticator.identify(credential);
    request.caller = { principal, credential, call: { principal, requestId: request.id } };
    this.limit(principal.tenantId);
    if (scope !== 'any' && scope !== 'optional') requireScope(principal, scope);
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

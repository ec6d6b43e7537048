import type { EgressCaller, EgressInjection } from '@margay/contracts';
import type { Exchange } from '../proxy/exchange';
import { refuse } from '../proxy/gate';
import type { ForwardTarget } from '../proxy/target';
import { AddedCredential } from './added-credential';
import type { Credential, Credentials } from './credential';
import { isPush, repositoryOf } from './git';

/** What a header may hold as it is. */
const SENDABLE = /^[\x21-\x7e][\x20-\x7e]*$/;

/** Adds credentials to requests, as rules say. */
export class Injector {
  constructor(
    /** Absent: there is nobody to ask for secrets. */
    private readonly credentials: Credentials | undefined,
  ) {}

  /** @throws PermissionDeniedError `egress_denied`, UnavailableError `egress_unavailable` */
  async prepare(
    exchange: Exchange,
    target: ForwardTarget,
    { inject, caller }: { inject: EgressInjection; caller: EgressCaller },
  ): Promise<AddedCredential> {
    if (!inject.push && isPush(target.resource)) throw refuse(exchange, 'push');
    const credential = await this.find(target, inject, caller);
    const isUsable = credential !== undefined && isSendable(inject, credential);
    // Without an account of its own a repository may still be open to everybody.
    if (!isUsable && (credential || inject.credential !== undefined)) throw refuse(exchange, 'credential');
    if (credential) exchange.credential = credential.name;
    return new AddedCredential(inject, target.host, credential);
  }

  private async find(
    { host, request }: ForwardTarget,
    { credential: name }: EgressInjection,
    { tenantId, sessionId = '' }: EgressCaller,
  ): Promise<Credential | undefined> {
    const which = name === undefined ? { repository: repositoryOf(request.path) } : { name };
    return this.credentials?.find({ tenantId, sessionId, host, ...which });
  }
}

function isSendable({ as }: EgressInjection, { value }: Credential): boolean {
  const isEncoded = as === 'basic' || as.startsWith('query:');
  return isEncoded ? value !== '' : SENDABLE.test(value);
}

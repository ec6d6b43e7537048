import type { EgressCaller, executorPb } from '@margay/contracts';
import { UnauthenticatedError } from '@margay/errors';
import type { EgressTokens } from './egress-tokens';

/** Whose sandbox has this id and this address; undefined if none has, or nobody owns it. */
export type FindCaller = (sandboxId: string, sourceAddress: string) => Promise<EgressCaller | undefined>;

/** Tells the egress proxy who speaks to it. */
export class EgressCallers {
  constructor(
    private readonly tokens: EgressTokens,
    private readonly find: FindCaller,
  ) {}

  /** @throws UnauthenticatedError `egress_identity`, whatever of it is wrong */
  async resolve(request: executorPb.ResolveCallerRequest): Promise<executorPb.ResolveCallerResponse> {
    const { sandboxId, token, sourceAddress } = request;
    const caller = (await this.tokens.isTokenOf(sandboxId, token))
      ? await this.find(sandboxId, sourceAddress)
      : undefined;
    if (!caller) throw new UnauthenticatedError('egress_identity', 'No sandbox has this name, token and address.');
    const { tenantId, sessionId, projectId, sandboxClass = '' } = caller;
    return {
      tenantId,
      sandboxClass,
      ...(sessionId !== undefined && { sessionId }),
      ...(projectId !== undefined && { projectId }),
    };
  }
}

import { EgressCaller, executorPb } from '@margay/contracts';
import { grpcClient, systemPrincipal, type KeyRing, type Logger } from '@margay/platform';
import type { ResolveClaim } from './token-identity';

const PLATFORM = '_platform';
const TIMEOUT_MS = 5_000;

export interface ExecutorCallers {
  resolve: ResolveClaim;
  close(): void;
}

/** Asks tool-executor, which keeps the sandboxes. */
export function executorCallers(address: string, keys: KeyRing, logger: Logger): ExecutorCallers {
  const client = grpcClient(executorPb.ExecutorDefinition, address, { keys, logger });
  return {
    resolve: async (claim) => {
      const options = { principal: systemPrincipal('egress', PLATFORM), timeoutMs: TIMEOUT_MS };
      const { tenantId, sessionId, sandboxClass, projectId } = await client.resolveCaller(claim, options);
      return EgressCaller.parse({ tenantId, sandboxId: claim.sandboxId, sessionId, sandboxClass, projectId });
    },
    close: () => client.close(),
  };
}

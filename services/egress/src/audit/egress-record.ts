/** `denied`: the proxy refused it; `failed`: the outside did; else `allowed`. */
export type Decision = 'allowed' | 'denied' | 'failed';

/** One use of the proxy, without anything of its content: a path has no query, and headers are not looked at. */
export interface EgressRecord {
  at: number;
  tenantId?: string;
  sessionId?: string;
  sandboxId?: string;
  /** Who asks where it is no sandbox. */
  service?: string;
  host: string;
  port: number;
  method?: string;
  path?: string;
  /** What the client was answered; 0 when it left before. */
  status: number;
  bytesUp: number;
  bytesDown: number;
  ms: number;
  rule?: string;
  /** Name of the secret that was added. */
  credential?: string;
  decision: Decision;
  /** `egress_denied` and the like. */
  reason?: string;
  /** More exactly: why a rule did not let it through. */
  why?: string;
}

const DENIED = new Set(['egress_denied', 'egress_identity', 'egress_limit', 'egress_address', 'egress_reflection']);

export function decisionOf(reason: string | undefined): Decision {
  if (reason === undefined) return 'allowed';
  return DENIED.has(reason) ? 'denied' : 'failed';
}

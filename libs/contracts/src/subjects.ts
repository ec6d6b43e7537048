/** NATS subjects; the only place that spells them. Tenant, session and pool ids hold no dots, stars or spaces. */
export const subjects = {
  /** One message per commit of the session. */
  sessionEvents: (tenantId: string, sessionId: string) => `margay.${tenantId}.session.${sessionId}.event`,
  /** The commits of all sessions of a tenant, to be listened to. */
  anySessionEvents: (tenantId: string) => `margay.${tenantId}.session.*.event`,
  /** Coalesced text fragments of the running step; lossy. */
  sessionDeltas: (tenantId: string, sessionId: string) => `margay.${tenantId}.session.${sessionId}.delta`,
  /** Nudges: a run of this pool waits for a runner. */
  dispatch: (pool: string) => `margay.dispatch.${pool}`,
  /** Cache invalidation, e.g. `keys`. */
  config: (kind: string) => `margay.config.${kind}`,
};

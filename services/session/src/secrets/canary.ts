import { randomBytes } from 'node:crypto';
import type { Logger } from '@margay/platform';

/** Of each tenant: a secret that is used for nothing, so whoever shows or asks for it should not have it. */
export const CANARY = '_canary';

export const newCanary = (): string => `canary_${randomBytes(24).toString('base64url')}`;

/** Told when secrets turn up where they must not be. */
export interface SecretHits {
  found(kind: 'secret' | 'canary'): void;
}

export interface CanaryHit {
  tenantId: string;
  /** Where it turned up: `commit`, `use`. */
  place: string;
  sessionId?: string;
  principal?: string;
}

export function tellCanaryHit(logger: Logger, hits: SecretHits, { tenantId, ...where }: CanaryHit): void {
  hits.found('canary');
  const target = { type: 'secret', name: CANARY };
  logger.error({ audit: { action: 'secret.canary_hit', tenantId, ...where, target } }, 'a canary was met');
}

import { createHash, randomBytes } from 'node:crypto';
import type { Principal } from '@margay/contracts';

function digest(parts: string[]): string {
  return createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 32);
}

/**
 * Commit id of a request: derived from its `Idempotency-Key`, so that a repeat finds the first; random without one.
 */
export function commitIdOf(principal: Principal, sessionId: string, operation: string, key: string): string {
  if (key === '') return `rq:${randomBytes(16).toString('hex')}`;
  return `ik:${digest([principal.tenantId, principal.principal, sessionId, operation, key])}`;
}

/** 32 lower-case hex; the same for the same key. */
export function newSessionId(principal: Principal, key: string): string {
  if (key === '') return randomBytes(16).toString('hex');
  return digest([principal.tenantId, principal.principal, 'create', key]);
}

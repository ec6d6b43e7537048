import { randomUUID } from 'node:crypto';
import type { SandboxGrant } from '@margay/contracts';
import type { KeyRing } from '@margay/platform';
import { LRUCache } from 'lru-cache';

/** A grant lives 60 s; it is used again for half of that. */
const REUSE_MS = 30_000;
const CACHED_GRANTS = 5_000;

/** Signs what this service may ask of a sandbox, once per half minute for the same thing. */
export class SandboxGrants {
  private readonly signed = new LRUCache<string, Promise<string>>({ max: CACHED_GRANTS, ttl: REUSE_MS });

  constructor(private readonly keys: KeyRing) {}

  token(grant: Omit<SandboxGrant, 'v' | 'scope' | 'jti'>): Promise<string> {
    const { sandboxId, sessionId, runId, storeGeneration, epoch } = grant;
    const key = `${sandboxId} ${sessionId} ${runId} ${storeGeneration} ${epoch}`;
    const cached = this.signed.get(key);
    if (cached) return cached;
    const token = this.keys.signSandboxGrant({ v: 1, ...grant, scope: ['execute', 'admin'], jti: randomUUID() });
    token.catch(() => this.signed.delete(key));
    this.signed.set(key, token);
    return token;
  }
}

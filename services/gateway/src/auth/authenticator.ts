import { createHash, timingSafeEqual } from 'node:crypto';
import { Role, type accessPb, type Principal } from '@margay/contracts';
import { InvalidArgumentError, isMargayError } from '@margay/errors';
import { LRUCache } from 'lru-cache';
import { unauthorized, type Credential } from './credential';

/** Asks the owner of the keys; throws UNAUTHENTICATED where there is no such valid key. */
export type KeyLookup = (request: accessPb.AuthenticateRequest) => Promise<accessPb.AuthenticateResponse>;

export interface AuthenticatorOptions {
  lookup: KeyLookup;
  masterToken?: string | undefined;
  /** Milliseconds; for tests. */
  now?: () => number;
}

const CACHE_MS = 5_000;
const CACHE_ENTRIES = 50_000;
const TENANT = /^[A-Za-z0-9_-]{1,64}$/;

/** Tells who a credential is. Answers, also the negative ones, are kept for at most five seconds. */
export class Authenticator {
  private readonly cache: LRUCache<string, Promise<Principal | null>>;
  private readonly masterSha256: Buffer | undefined;

  constructor(private readonly options: AuthenticatorOptions) {
    const { masterToken, now } = options;
    this.masterSha256 = masterToken === undefined ? undefined : createHash('sha256').update(masterToken).digest();
    const perf = now ? { perf: { now }, ttlResolution: 0 } : {};
    this.cache = new LRUCache({ max: CACHE_ENTRIES, ttl: CACHE_MS, ...perf });
  }

  /** Throws UNAUTHENTICATED, or UNAVAILABLE while the keys cannot be looked up. */
  async identify(credential: Credential): Promise<Principal> {
    if (this.masterSha256 && timingSafeEqual(credential.sha256, this.masterSha256)) return operator(credential.tenant);
    if (credential.keyId === undefined) throw unauthorized();
    const principal = await this.cached(credential, credential.keyId);
    if (!principal) throw unauthorized();
    return principal;
  }

  /** Stands for the platform operator's token; throws UNAUTHENTICATED where there is none. */
  operatorCredential(tenant: string): Credential {
    if (!this.masterSha256) throw unauthorized();
    return { sha256: this.masterSha256, tenant };
  }

  /** Keys have changed. */
  forget(): void {
    this.cache.clear();
  }

  private cached({ sha256 }: Credential, keyId: string): Promise<Principal | null> {
    const cacheKey = sha256.toString('base64');
    const known = this.cache.get(cacheKey);
    if (known) return known;
    const looking = this.look(keyId, sha256);
    this.cache.set(cacheKey, looking);
    // Outages are not remembered.
    looking.catch(() => {
      if (this.cache.peek(cacheKey) === looking) this.cache.delete(cacheKey);
    });
    return looking;
  }

  private async look(keyId: string, secretSha256: Buffer): Promise<Principal | null> {
    try {
      const found = await this.options.lookup({ keyId, secretSha256 });
      const { tenantId, principal, allScopes, scopes } = found;
      const role = Role.parse(found.role);
      return { v: 1, iss: 'gateway', tenantId, principal, role, scopes: allScopes ? null : scopes, keyId };
    } catch (error) {
      if (isMargayError(error) && (error.code === 'UNAUTHENTICATED' || error.code === 'NOT_FOUND')) return null;
      throw error;
    }
  }
}

function operator(tenant = 'default'): Principal {
  if (!TENANT.test(tenant))
    throw new InvalidArgumentError('bad_request', "Invalid header: 'X-Margay-Tenant' must be the id of a tenant");
  return { v: 1, iss: 'gateway', tenantId: tenant, principal: 'platform:operator', role: 'operator', scopes: null };
}

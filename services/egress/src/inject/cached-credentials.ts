import { isMargayError } from '@margay/errors';
import { LRUCache } from 'lru-cache';
import { Credentials, type Credential, type CredentialQuery } from './credential';

/** A secret that was revoked is dead within five seconds, whoever announces it or not. */
const FRESH_MS = 4_000;
/** While session cannot be asked, nobody can revoke anything either. */
const KEPT_MS = 60_000;
const KEPT = 1_000;

interface Known {
  at: number;
  credential: Credential | undefined;
}

/** Spares session the same question for each request. */
export class CachedCredentials extends Credentials {
  private readonly known: LRUCache<string, Known>;
  private readonly asked = new Map<string, Promise<Credential | undefined>>();

  constructor(
    private readonly source: Credentials,
    private readonly now: () => number = () => performance.now(),
  ) {
    super();
    // Values leave the memory when their time is over, not when somebody looks.
    this.known = new LRUCache({ max: KEPT, ttl: KEPT_MS, perf: { now }, ttlResolution: 0, ttlAutopurge: true });
  }

  find(query: CredentialQuery): Promise<Credential | undefined> {
    const { tenantId, sessionId, host, name, repository } = query;
    const key = JSON.stringify([tenantId, sessionId, host, name ?? null, name === undefined ? repository : null]);
    const known = this.known.get(key);
    if (known && this.now() - known.at < FRESH_MS) return Promise.resolve(living(known.credential));
    const asked = this.asked.get(key);
    if (asked) return asked;
    const asking = this.ask(key, query, known).finally(() => this.asked.delete(key));
    this.asked.set(key, asking);
    return asking;
  }

  /** A secret of this tenant has changed. */
  forget(tenantId: string): void {
    for (const key of this.known.keys()) if ((JSON.parse(key) as string[])[0] === tenantId) this.known.delete(key);
  }

  private async ask(key: string, query: CredentialQuery, known: Known | undefined): Promise<Credential | undefined> {
    const at = this.now();
    try {
      const credential = await this.source.find(query);
      this.known.set(key, { at, credential });
      return credential;
    } catch (error) {
      if (known && isMargayError(error) && error.code === 'UNAVAILABLE') return living(known.credential);
      throw error;
    }
  }
}

function living(credential: Credential | undefined): Credential | undefined {
  return credential?.expiresAt && credential.expiresAt.getTime() <= Date.now() ? undefined : credential;
}

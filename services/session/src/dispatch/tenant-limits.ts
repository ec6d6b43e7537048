import { LRUCache } from 'lru-cache';
import type { TenantLimit } from './fairness';

/** Changes act within this time, even where their announcement is lost. */
const CACHE_MS = 5_000;
const CACHE_MAX = 10_000;

/** What the document of a tenant says of its share; what it does not say is the installation's default. */
export interface TenantShare {
  tenantId: string;
  weight?: number;
  maxRunning?: number;
}

/** Caps and weights of tenants, remembered for a few seconds. */
export class TenantLimits {
  private readonly known = new LRUCache<string, TenantLimit>({ max: CACHE_MAX, ttl: CACHE_MS });

  constructor(
    private readonly find: (tenantIds: readonly string[]) => Promise<TenantShare[]>,
    private readonly defaults: TenantLimit,
  ) {}

  /** Something about tenants has changed. */
  forget(): void {
    this.known.clear();
  }

  /** The limit of a tenant, if it is remembered. */
  peek(tenantId: string): TenantLimit | undefined {
    return this.known.get(tenantId);
  }

  /** @returns the limit of each of these tenants; of others the default */
  async of(tenantIds: Iterable<string>): Promise<(tenantId: string) => TenantLimit> {
    const found = new Map<string, TenantLimit>();
    const missing: string[] = [];
    for (const tenantId of new Set(tenantIds)) {
      const limit = this.known.get(tenantId);
      if (limit) found.set(tenantId, limit);
      else missing.push(tenantId);
    }
    if (missing.length > 0) {
      const shares = new Map((await this.find(missing)).map((share) => [share.tenantId, share]));
      for (const tenantId of missing) {
        const limit = this.limitOf(shares.get(tenantId));
        this.known.set(tenantId, limit);
        found.set(tenantId, limit);
      }
    }
    return (tenantId) => found.get(tenantId) ?? this.defaults;
  }

  private limitOf(share: TenantShare | undefined): TenantLimit {
    const { weight, maxRunning } = this.defaults;
    return { weight: share?.weight ?? weight, maxRunning: share?.maxRunning ?? maxRunning };
  }
}

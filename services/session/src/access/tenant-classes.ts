import { LRUCache } from 'lru-cache';
import type { TenantRow } from './access.repository';

/** Changes act within this time, even where their announcement is lost. */
const CACHE_MS = 5_000;
const CACHE_MAX = 10_000;

/** What a tenant's document says of classes of sandboxes. */
export interface ClassesOfTenant {
  /** Of sessions that name none. */
  usual?: string | undefined;
  /** Absent: all. */
  allowed?: readonly string[] | undefined;
}

/** Classes that tenants have and may have, remembered for a few seconds. */
export class TenantClasses {
  private readonly known = new LRUCache<string, ClassesOfTenant>({ max: CACHE_MAX, ttl: CACHE_MS });

  constructor(private readonly find: (tenantId: string) => Promise<TenantRow | undefined>) {}

  async of(tenantId: string): Promise<ClassesOfTenant> {
    const known = this.known.get(tenantId);
    if (known) return known;
    const row = await this.find(tenantId);
    const classes = { usual: row?.sandboxClass, allowed: row?.ceilings?.allowedClasses };
    this.known.set(tenantId, classes);
    return classes;
  }

  /** Something about tenants has changed. */
  forget(): void {
    this.known.clear();
  }
}

import type { RunningCount, RunRow } from './run.repository';

/** What a tenant may have of the runners. */
export interface TenantLimit {
  /** Its share beside others, 1–100. */
  weight: number;
  /** Runs it may have running at once, over all pools; `Infinity` = no cap. */
  maxRunning: number;
}

/** Running runs per tenant and per principal of a tenant, kept while runs are picked. */
export class Load {
  private readonly counts = new Map<string, number>();

  constructor(running: readonly RunningCount[]) {
    for (const { tenantId, principal, runs } of running) this.add(tenantId, principal, runs);
  }

  add(tenantId: string, principal: string, runs = 1): void {
    for (const key of [tenantId, `${tenantId}/${principal}`]) this.counts.set(key, (this.counts.get(key) ?? 0) + runs);
  }

  ofTenant(tenantId: string): number {
    return this.counts.get(tenantId) ?? 0;
  }

  ofPrincipal(tenantId: string, principal: string): number {
    return this.counts.get(`${tenantId}/${principal}`) ?? 0;
  }
}

interface Waiting {
  /** Place in the queue by age. */
  age: number;
  row: RunRow;
}

/**
 * Queued runs in the order in which they are to start: of the tenant below its cap with the fewest running runs per
 * weight, within it of the principal with the fewest, then the oldest.
 */
export class FairQueue {
  /** By tenant, then by principal, oldest first. */
  private readonly waiting = new Map<string, Map<string, Waiting[]>>();

  /** @param queued oldest first */
  constructor(
    queued: readonly RunRow[],
    private readonly load: Load,
    private readonly limitOf: (tenantId: string) => TenantLimit,
  ) {
    queued.forEach((row, age) => {
      const tenant = entry(this.waiting, row.tenantId, () => new Map<string, Waiting[]>());
      entry(tenant, row.principal, () => []).push({ age, row });
    });
  }

  /** Takes the next run out, and counts it as running; undefined where no tenant with queued runs is below its cap. */
  next(): RunRow | undefined {
    let best: { share: number; first: Waiting } | undefined;
    for (const [tenantId, principals] of this.waiting) {
      if (!this.isBelowCap(tenantId)) continue;
      const share = this.load.ofTenant(tenantId) / this.limitOf(tenantId).weight;
      const first = this.firstOf(tenantId, principals);
      if (!best || share < best.share || (share === best.share && first.age < best.first.age)) best = { share, first };
    }
    if (!best) return undefined;
    const { row } = best.first;
    this.load.add(row.tenantId, row.principal);
    this.remove(row);
    return row;
  }

  /** Tenants with queued runs, and whether one of them could start if there were a slot. */
  get left(): { tenantId: string; isBelowCap: boolean }[] {
    return [...this.waiting.keys()].map((tenantId) => ({ tenantId, isBelowCap: this.isBelowCap(tenantId) }));
  }

  private isBelowCap(tenantId: string): boolean {
    return this.load.ofTenant(tenantId) < this.limitOf(tenantId).maxRunning;
  }

  private firstOf(tenantId: string, principals: Map<string, Waiting[]>): Waiting {
    let best: { runs: number; first: Waiting } | undefined;
    for (const [principal, [first]] of principals) {
      if (!first) continue;
      const runs = this.load.ofPrincipal(tenantId, principal);
      if (!best || runs < best.runs || (runs === best.runs && first.age < best.first.age)) best = { runs, first };
    }
    // Empty lists and maps are removed at once.
    return (best as { first: Waiting }).first;
  }

  private remove({ tenantId, principal }: RunRow): void {
    const principals = this.waiting.get(tenantId);
    const rows = principals?.get(principal);
    rows?.shift();
    if (rows?.length === 0) principals?.delete(principal);
    if (principals?.size === 0) this.waiting.delete(tenantId);
  }
}

function entry<K, V>(map: Map<K, V>, key: K, make: () => V): V {
  const known = map.get(key);
  if (known !== undefined) return known;
  const made = make();
  map.set(key, made);
  return made;
}

import type { RunningCount, RunRow } from './run.repository';

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

/**
 * The queued run to start next: of the tenant with the fewest running runs, within it of the principal with the fewest,
 * then the oldest.
 * @param queued oldest first, not empty
 */
export function pickFairly(queued: readonly RunRow[], load: Load): RunRow {
  const loadOf = ({ tenantId, principal }: RunRow): [number, number] => [
    load.ofTenant(tenantId),
    load.ofPrincipal(tenantId, principal),
  ];
  return queued.reduce((best, row) => {
    const [bestTenant, bestPrincipal] = loadOf(best);
    const [tenant, principal] = loadOf(row);
    return tenant < bestTenant || (tenant === bestTenant && principal < bestPrincipal) ? row : best;
  });
}

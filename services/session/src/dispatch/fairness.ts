import type { RunRow } from './run.repository';

/**
 * The queued run to start next: of the tenant with the fewest running runs, within it of the principal with the fewest
 * runs started so far this round, then the oldest.
 * @param queued oldest first, not empty
 * @param runningByTenant running runs of the pool; tenants without any may be absent
 */
export function pickFairly(
  queued: readonly RunRow[],
  runningByTenant: ReadonlyMap<string, number>,
  startedByPrincipal: ReadonlyMap<string, number> = new Map(),
): RunRow {
  const load = (row: RunRow): [number, number] => [
    runningByTenant.get(row.tenantId) ?? 0,
    startedByPrincipal.get(row.principal) ?? 0,
  ];
  return queued.reduce((best, row) => {
    const [bestTenant, bestPrincipal] = load(best);
    const [tenant, principal] = load(row);
    return tenant < bestTenant || (tenant === bestTenant && principal < bestPrincipal) ? row : best;
  });
}

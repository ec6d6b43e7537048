import type { LeaseRepository } from '@margay/platform';

/** A replica that dies with the gate closed behind it keeps others waiting for so long. */
const LEASE_MS = 10_000;

const leaseOf = (tenantId: string): string => `dispatch/${tenantId}`;

/**
 * Lets one replica at a time count and claim for a tenant that is near its cap: two that count at once would both find
 * room for one more. A lease is a hint, so a replica paused for longer may start one run too many; nothing else breaks.
 */
export class TenantGate {
  private readonly inside = new Set<string>();

  constructor(
    private readonly leases: Pick<LeaseRepository, 'hold' | 'release'>,
    /** Told of a lease that runs out by itself. */
    private readonly onNotReleased: (error: unknown) => void,
  ) {}

  /** @returns those of the tenants that this replica may claim for until it leaves */
  async enter(tenantIds: readonly string[]): Promise<Set<string>> {
    const free = tenantIds.filter((tenantId) => !this.inside.has(tenantId));
    for (const tenantId of free) this.inside.add(tenantId);
    const held = await Promise.all(free.map((tenantId) => this.hold(tenantId)));
    const entered = free.filter((_, index) => held[index]);
    for (const tenantId of free) if (!entered.includes(tenantId)) this.inside.delete(tenantId);
    return new Set(entered);
  }

  /** Whether this replica is counting for a tenant, or its claims are under way. */
  isInside(tenantId: string): boolean {
    return this.inside.has(tenantId);
  }

  /** Never rejects. */
  async leave(tenantIds: Iterable<string>): Promise<void> {
    await Promise.all(
      [...tenantIds].map(async (tenantId) => {
        await this.leases.release(leaseOf(tenantId)).catch((error: unknown) => this.onNotReleased(error));
        this.inside.delete(tenantId);
      }),
    );
  }

  /** A store that does not answer opens nothing. */
  private hold(tenantId: string): Promise<boolean> {
    return this.leases.hold(leaseOf(tenantId), LEASE_MS).catch(() => false);
  }
}

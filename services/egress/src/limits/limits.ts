import type { EgressCaller, EgressLimits } from '@margay/contracts';
import { ResourceExhaustedError, type MargayError } from '@margay/errors';

const DAY_MS = 86_400_000;

interface Usage {
  tokens: number;
  filledAt: number;
  day: number;
  bytes: number;
  connections: number;
}

/** One connection's share of a tenant's limits. */
export interface Lease {
  /** @throws ResourceExhaustedError `egress_limit` when the day's bytes are used up */
  spend(bytes: number): void;
  leave(): void;
}

/** Counts what tenants and sandboxes use of this replica. */
export class Limits {
  private readonly tenants = new Map<string, Usage>();
  private readonly sandboxes = new Map<string, number>();

  constructor(private readonly now: () => number) {}

  /** Takes one request of a tenant's rate; refused ones count, too. */
  request({ tenantId }: EgressCaller, { requestsPerSecond }: EgressLimits): void {
    const usage = this.usageOf(tenantId, requestsPerSecond);
    const now = this.now();
    // A clock may be put back.
    const elapsedMs = Math.max(0, now - usage.filledAt);
    usage.tokens = Math.min(requestsPerSecond, usage.tokens + (elapsedMs / 1_000) * requestsPerSecond);
    usage.filledAt = now;
    if (usage.tokens < 1) throw exceeded(`more than ${requestsPerSecond} requests in a second`);
    usage.tokens -= 1;
  }

  /** Opens a connection of a sandbox. */
  enter({ tenantId, sandboxId }: EgressCaller, limits: EgressLimits): Lease {
    const usage = this.usageOf(tenantId, limits.requestsPerSecond);
    const key = `${tenantId}/${sandboxId}`;
    const own = this.sandboxes.get(key) ?? 0;
    if (usage.connections >= limits.connections) throw exceeded(`more than ${limits.connections} connections at once`);
    if (own >= limits.perSandbox) throw exceeded(`more than ${limits.perSandbox} connections of a sandbox at once`);
    if (this.bytesToday(usage) >= limits.bytesPerDay) throw exceeded(`more than ${limits.bytesPerDay} bytes in a day`);
    usage.connections += 1;
    this.sandboxes.set(key, own + 1);
    let isOpen = true;
    return {
      spend: (bytes) => {
        usage.bytes = this.bytesToday(usage) + bytes;
        if (usage.bytes > limits.bytesPerDay) throw exceeded(`more than ${limits.bytesPerDay} bytes in a day`);
      },
      leave: () => {
        if (!isOpen) return;
        isOpen = false;
        usage.connections -= 1;
        this.leaveSandbox(key);
      },
    };
  }

  private leaveSandbox(key: string): void {
    const left = (this.sandboxes.get(key) ?? 1) - 1;
    if (left > 0) this.sandboxes.set(key, left);
    else this.sandboxes.delete(key);
  }

  private usageOf(tenantId: string, tokens: number): Usage {
    const known = this.tenants.get(tenantId);
    if (known) return known;
    const usage = { tokens, filledAt: this.now(), day: this.today(), bytes: 0, connections: 0 };
    this.tenants.set(tenantId, usage);
    return usage;
  }

  private bytesToday(usage: Usage): number {
    if (usage.day !== this.today()) Object.assign(usage, { day: this.today(), bytes: 0 });
    return usage.bytes;
  }

  private today(): number {
    return Math.floor(this.now() / DAY_MS);
  }
}

export function exceeded(what: string): MargayError {
  return new ResourceExhaustedError('egress_limit', `The limits of this tenant do not allow ${what}.`);
}

import { FailedPreconditionError } from '@margay/errors';
import type { NetworkCheckRepository } from './network-check.repository';

export interface NetworkGateParts {
  checks: Pick<NetworkCheckRepository, 'find' | 'settleFirst'>;
  /** The tenant of the oldest workspace, apart from one. */
  oldestTenant: (except: string) => Promise<string | undefined>;
  now?: () => number;
}

/** A good verdict is asked for again after that, a bad one much sooner: somebody may be mending it. */
const GOOD_MS = 30_000;
const BAD_MS = 2_000;
/** It is renewed weekly; when nobody has done so for long, it is none. */
const VALID_MS = 15 * 24 * 3_600_000;
/** Of the platform itself: `doctor --cluster` looks out of a sandbox of nobody. */
const PLATFORM = '_platform';

interface Known {
  holds: boolean;
  detail: string;
  untilMs: number;
}

/** Until network policies are known to be enforced, sandboxes are one tenant's alone (cluster §1.10). */
export class NetworkGate {
  private readonly known = new Map<string, Known>();
  private readonly now: () => number;

  constructor(private readonly parts: NetworkGateParts) {
    this.now = parts.now ?? Date.now;
  }

  /** @throws FailedPreconditionError `network_policy_unenforced` */
  async admit(tenantId: string, namespace: string): Promise<void> {
    if (tenantId === PLATFORM) return;
    const { holds, detail } = await this.verdict(namespace);
    if (holds) return;
    const { checks, oldestTenant } = this.parts;
    const first = await checks.settleFirst((await oldestTenant(PLATFORM)) ?? tenantId);
    if (first === tenantId) return;
    const fix = 'Use a network plugin that enforces NetworkPolicy; docs/installing.md says how it is found out.';
    const message = `Sandboxes of a second tenant in ${namespace} are refused: ${detail}. ${fix}`;
    throw new FailedPreconditionError('network_policy_unenforced', message);
  }

  private async verdict(namespace: string): Promise<Known> {
    const before = this.known.get(namespace);
    if (before && before.untilMs > this.now()) return before;
    const check = await this.parts.checks.find(namespace);
    const isOld = check !== undefined && this.now() - check.at.getTime() > VALID_MS;
    const holds = check?.holds === true && !isOld;
    const detail = isOld ? 'nobody has looked for long whether network policies are enforced' : check?.detail;
    const untilMs = this.now() + (holds ? GOOD_MS : BAD_MS);
    const found = { holds, detail: detail ?? 'it is not known yet whether network policies are enforced', untilMs };
    this.known.set(namespace, found);
    return found;
  }
}

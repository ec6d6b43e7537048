import { isMargayError } from '@margay/errors';
import { Counter, Gauge, Histogram, type Registry } from 'prom-client';
import type { ClaimPath } from './driver/sandbox-driver';
import type { SandboxObserver, SandboxRegistry } from './sandbox/sandbox-registry';

const CLAIM_SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];

/** What tool-executor measures of its sandboxes. */
export class SandboxMetrics implements SandboxObserver {
  private readonly claimDuration: Histogram<'class' | 'path'>;
  private readonly claimFailures: Counter<'reason'>;
  private readonly lostSandboxes: Counter<'cause'>;

  constructor(private readonly registry: Registry) {
    const registers = [registry];
    this.claimDuration = new Histogram({
      name: 'margay_sandbox_claim_duration_seconds',
      help: 'From the wish for a sandbox to one that answers',
      labelNames: ['class', 'path'],
      buckets: CLAIM_SECONDS,
      registers,
    });
    this.claimFailures = new Counter({
      name: 'margay_sandbox_claim_failures_total',
      help: 'Sandboxes that could not be had',
      labelNames: ['reason'],
      registers,
    });
    this.lostSandboxes = new Counter({
      name: 'margay_sandbox_lost_total',
      help: 'Sandboxes that ended without being told to',
      labelNames: ['cause'],
      registers,
    });
  }

  /** Counts the sandboxes whenever somebody asks. */
  show(sandboxes: SandboxRegistry): void {
    const gauge: Gauge<'class' | 'state'> = new Gauge({
      name: 'margay_sandboxes',
      help: 'Sandboxes of this replica',
      labelNames: ['class', 'state'],
      registers: [this.registry],
      collect: () => {
        gauge.reset();
        for (const [state, classes] of Object.entries(sandboxes.inUse))
          for (const name of new Set([...sandboxes.classes, ...classes]))
            gauge.set({ class: name, state }, classes.filter((one) => one === name).length);
      },
    });
  }

  claimed(seconds: number, path: ClaimPath, className: string): void {
    this.claimDuration.observe({ class: className, path }, seconds);
  }

  claimFailed(error: unknown): void {
    this.claimFailures.inc({ reason: isMargayError(error) ? error.reason : 'internal' });
  }

  lost(cause: string): void {
    this.lostSandboxes.inc({ cause });
  }
}

import { Counter, Gauge, type Registry } from 'prom-client';
import type { EgressRecord } from './audit/egress-record';
import { OUTCOMES, type Outcome } from './identity/token-identity';

/** What the egress proxy measures. */
export class EgressMetrics {
  private readonly requests: Counter<'decision' | 'reason'>;
  private readonly bytes: Counter<'direction'>;

  constructor(private readonly registry: Registry) {
    const registers = [registry];
    this.requests = new Counter({
      name: 'margay_egress_requests_total',
      help: 'Requests and tunnels that ended, by what became of them',
      labelNames: ['decision', 'reason'],
      registers,
    });
    // The first one must be seen to grow, or no alert tells of it.
    this.requests.inc({ decision: 'denied', reason: 'egress_reflection' }, 0);
    this.bytes = new Counter({
      name: 'margay_egress_bytes_total',
      help: 'Bytes of content passed on, up to hosts and down from them',
      labelNames: ['direction'],
      registers,
    });
  }

  /** Counts the open connections whenever somebody asks. */
  show(countOpen: () => number): void {
    const gauge: Gauge = new Gauge({
      name: 'margay_egress_connections',
      help: 'Requests and tunnels that are open',
      registers: [this.registry],
      collect: () => gauge.set(countOpen()),
    });
  }

  /** Of what tenants have stored, as far as this proxy knows it. */
  showAge(ageMs: () => number): void {
    const gauge: Gauge = new Gauge({
      name: 'margay_egress_policies_age_seconds',
      help: 'Time since session last confirmed the policies of tenants that are used',
      registers: [this.registry],
      collect: () => gauge.set(ageMs() / 1_000),
    });
  }

  ended({ decision, reason }: EgressRecord): void {
    this.requests.inc({ decision, reason: reason ?? 'none' });
  }

  passed(direction: 'up' | 'down', bytes: number): void {
    this.bytes.inc({ direction }, bytes);
  }
}

/** Counts how claims of who asks were answered. */
export function identityCounter(registry: Registry): (outcome: Outcome) => void {
  const counter = new Counter({
    name: 'margay_egress_identity_total',
    help: 'Claims of who asks, by how they were answered: from memory, by tool-executor, or not at all',
    labelNames: ['outcome'],
    registers: [registry],
  });
  for (const outcome of OUTCOMES) counter.inc({ outcome }, 0);
  return (outcome) => counter.inc({ outcome });
}

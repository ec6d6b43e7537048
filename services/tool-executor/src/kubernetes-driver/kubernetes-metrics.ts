import { Counter, Gauge, type Registry } from 'prom-client';
import type { PoolState } from '../driver/sandbox-driver';

/** What the driver does to the cluster. */
export class KubernetesMetrics {
  private readonly writes: Counter<'verb' | 'kind'>;
  private readonly orphans: Counter<'kind'>;
  private readonly pool: Gauge<'class' | 'state'>;

  constructor(registry: Registry) {
    const registers = [registry];
    this.writes = new Counter({
      name: 'margay_kubernetes_writes_total',
      help: 'Writes that the Kubernetes API took',
      labelNames: ['verb', 'kind'],
      registers,
    });
    this.orphans = new Counter({
      name: 'margay_sandbox_orphans_removed_total',
      help: 'Pods, rows and volumes without a counterpart that were removed',
      labelNames: ['kind'],
      registers,
    });
    this.pool = new Gauge({
      name: 'margay_sandbox_pool',
      help: 'Sandboxes that wait for a session, as the replica that looks after them sees it',
      labelNames: ['class', 'state'],
      registers,
    });
  }

  pooled(className: string, state: PoolState): void {
    for (const [name, count] of Object.entries(state)) this.pool.set({ class: className, state: name }, count);
  }

  readonly wrote = (verb: string, kind: string): void => this.writes.inc({ verb, kind });

  readonly removed = (kind: string): void => this.orphans.inc({ kind });
}

import { Counter, type Registry } from 'prom-client';

/** What the driver does to the cluster. */
export class KubernetesMetrics {
  private readonly writes: Counter<'verb' | 'kind'>;
  private readonly orphans: Counter<'kind'>;

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
  }

  readonly wrote = (verb: string, kind: string): void => this.writes.inc({ verb, kind });

  readonly removed = (kind: string): void => this.orphans.inc({ kind });
}

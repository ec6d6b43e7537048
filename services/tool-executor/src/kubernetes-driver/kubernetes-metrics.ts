import { Counter, Gauge, type Registry } from 'prom-client';
import type { PoolState } from '../driver/sandbox-driver';

/** A pool is looked after every few seconds. */
const POOL_OLD_MS = 60_000;

/** What the driver does to the cluster. */
export class KubernetesMetrics {
  private readonly writes: Counter<'verb' | 'kind'>;
  private readonly orphans: Counter<'kind'>;
  private readonly pool: Gauge<'class' | 'state'>;
  /** By class. */
  private readonly lookedAt = new Map<string, number>();

  constructor(
    registry: Registry,
    private readonly now: () => number = () => performance.now(),
  ) {
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
      collect: () => this.forgetOld(),
    });
  }

  pooled(className: string, state: PoolState): void {
    this.lookedAt.set(className, this.now());
    for (const [name, count] of Object.entries(state)) this.pool.set({ class: className, state: name }, count);
  }

  /** Another replica looks after that pool by now; what this one saw last is not so any more. */
  private forgetOld(): void {
    for (const [className, at] of this.lookedAt) {
      if (this.now() - at < POOL_OLD_MS) continue;
      this.lookedAt.delete(className);
      for (const state of ['warm', 'warming', 'failing']) this.pool.remove({ class: className, state });
    }
  }

  readonly wrote = (verb: string, kind: string): void => this.writes.inc({ verb, kind });

  readonly removed = (kind: string): void => this.orphans.inc({ kind });
}

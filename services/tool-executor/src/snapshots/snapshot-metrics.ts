import { Counter, Histogram, type Registry } from 'prom-client';
import type { SnapshotObserver } from './snapshots';

const SECONDS = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 300, 900];

/** What is measured of archives of workspaces. */
export class SnapshotMetrics implements SnapshotObserver {
  private readonly durations: Histogram<'kind'>;
  private readonly failures: Counter<'reason'>;

  constructor(registry: Registry) {
    const registers = [registry];
    this.durations = new Histogram({
      name: 'margay_workspace_snapshot_duration_seconds',
      help: 'Until an archive of a workspace is stored',
      labelNames: ['kind'],
      buckets: SECONDS,
      registers,
    });
    this.failures = new Counter({
      name: 'margay_workspace_snapshot_failures_total',
      help: 'Archives of workspaces that could not be made',
      labelNames: ['reason'],
      registers,
    });
  }

  taken(kind: 'full' | 'delta', seconds: number): void {
    this.durations.observe({ kind }, seconds);
  }

  failed(reason: string): void {
    this.failures.inc({ reason });
  }
}

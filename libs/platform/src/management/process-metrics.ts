import { collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { HealthReport } from './health';
import { LoopWatch } from './loop-watch';

const SAMPLE_MS = 100;
const WORTH = { ok: 1, degraded: 0.5, failed: 0 };

/** A registry of this process: Node's default metrics, build, and how late the event loop runs. */
export class ProcessMetrics {
  readonly registry = new Registry();
  readonly loop = new LoopWatch();
  private readonly timer: NodeJS.Timeout;

  constructor(version: string) {
    const registers = [this.registry];
    collectDefaultMetrics({ register: this.registry });
    new Gauge({ name: 'margay_build_info', help: 'Always 1', labelNames: ['version'], registers }).set({ version }, 1);
    const delay = new Histogram({
      name: 'margay_event_loop_delay_seconds',
      help: 'How much later than asked a timer fires',
      buckets: [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5],
      registers,
    });
    let expectedAt = performance.now() + SAMPLE_MS;
    this.timer = setInterval(() => {
      const now = performance.now();
      const lateMs = Math.max(0, now - expectedAt);
      delay.observe(lateMs / 1000);
      this.loop.observe(lateMs);
      expectedAt = now + SAMPLE_MS;
    }, SAMPLE_MS).unref();
  }

  /** What readiness hangs on, asked whenever somebody reads the metrics. */
  showChecks(report: () => Promise<HealthReport['checks']>): void {
    const gauge: Gauge<'check'> = new Gauge({
      name: 'margay_ready_check',
      help: '1 while this part of readiness holds, 0.5 while it works worse, 0 while it fails',
      labelNames: ['check'],
      registers: [this.registry],
      collect: async () => {
        const checks = await report();
        gauge.reset();
        for (const [check, { status }] of Object.entries(checks)) gauge.set({ check }, WORTH[status]);
      },
    });
  }

  close(): void {
    clearInterval(this.timer);
    this.registry.clear();
  }
}

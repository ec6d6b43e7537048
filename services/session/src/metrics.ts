import { Counter, Gauge, Histogram, type Registry } from 'prom-client';

const FAST_SECONDS = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5];

/** What session measures of itself. */
export class SessionMetrics {
  readonly commitDuration: Histogram;
  readonly janitorRepairs: Counter;
  readonly takeovers: Counter<'cause'>;
  readonly runnerSlots: Gauge<'pool' | 'state'>;
  readonly runsEnded: Counter<'done_reason'>;

  constructor(registry: Registry) {
    const registers = [registry];
    this.commitDuration = new Histogram({
      name: 'margay_commit_duration_seconds',
      help: 'Time of one insert into the session log',
      buckets: FAST_SECONDS,
      registers,
    });
    this.janitorRepairs = new Counter({
      name: 'margay_janitor_repairs_total',
      help: 'Commits whose effects the janitor redid',
      registers,
    });
    this.takeovers = new Counter({
      name: 'margay_takeovers_total',
      help: 'Runs taken back from a runner',
      labelNames: ['cause'],
      registers,
    });
    this.runnerSlots = new Gauge({
      name: 'margay_runner_slots',
      help: 'Slots of the runners attached here',
      labelNames: ['pool', 'state'],
      registers,
    });
    this.runsEnded = new Counter({
      name: 'margay_runs_ended_total',
      help: 'Runs that this replica wrote the end of',
      labelNames: ['done_reason'],
      registers,
    });
  }
}

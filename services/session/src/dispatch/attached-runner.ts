import type { runnersPb } from '@margay/contracts';

export interface HeldRun {
  sessionId: string;
  runId: string;
  epoch: number;
}

/** Where what is said to a runner goes. */
export interface RunnerStream {
  send(message: runnersPb.AttachResponse): void;
  end(): void;
}

/** After so many heartbeats that do not list it, an assignment has ended already, or has never arrived. */
const UNLISTED_MAX = 2;
/** A runner that has missed a heartbeat may stand still: what it were given now would wait until it counts as lost. */
const QUIET_MS = 8_000;

/** A runner process whose `Attach` stream ends at this replica. */
export class AttachedRunner {
  isDrained = false;
  /** Free slots as its last heartbeat said; none before the first: it may hold runs that others assigned. */
  private reported = 0;
  private heardAtMs = -Infinity;
  /** Claims under way. */
  private reserved = 0;
  private readonly listed = new Map<string, HeldRun>();
  /** Assigned, and not in a heartbeat since. */
  private readonly unlisted = new Map<string, { run: HeldRun; beats: number }>();

  constructor(
    readonly instance: string,
    readonly pool: string,
    readonly slots: number,
    readonly generation: number,
    private readonly stream: RunnerStream,
    /** Milliseconds of a clock that never jumps. */
    private readonly nowMs: () => number = () => performance.now(),
  ) {}

  get free(): number {
    if (this.isDrained || this.nowMs() - this.heardAtMs > QUIET_MS) return 0;
    return Math.max(0, this.reported - this.reserved - this.unlisted.size);
  }

  get held(): HeldRun[] {
    return [...this.listed.values(), ...[...this.unlisted.values()].map(({ run }) => run)];
  }

  /** Before a claim: the slot counts as taken, until `giveBack`. */
  reserve(): void {
    this.reserved += 1;
  }

  giveBack(): void {
    this.reserved -= 1;
  }

  assign(assignment: runnersPb.Assign): void {
    const { sessionId, runId, epoch } = assignment;
    this.unlisted.set(runId, { run: { sessionId, runId, epoch }, beats: 0 });
    this.stream.send({ message: { $case: 'assign', value: assignment } });
  }

  revoke(run: HeldRun, reason: string): void {
    this.onRunLeft(run.runId);
    this.stream.send({ message: { $case: 'revoke', value: { ...run, reason } } });
  }

  /** What the runner says it holds. Assignments that it may not have seen yet stay counted. */
  onHeartbeat(freeSlots: number, runs: HeldRun[]): void {
    this.reported = freeSlots;
    this.heardAtMs = this.nowMs();
    this.listed.clear();
    for (const run of runs) {
      this.listed.set(run.runId, run);
      this.unlisted.delete(run.runId);
    }
    for (const [runId, assigned] of this.unlisted) {
      assigned.beats += 1;
      if (assigned.beats >= UNLISTED_MAX) this.unlisted.delete(runId);
    }
  }

  /** @returns whether the run was here and has freed a slot */
  onRunLeft(runId: string): boolean {
    if (this.unlisted.delete(runId)) return true;
    if (!this.listed.delete(runId)) return false;
    this.reported += 1;
    return true;
  }

  /** It attaches to another replica. */
  hangUp(): void {
    this.stream.end();
  }

  acknowledge(ack: runnersPb.HeartbeatAck): void {
    this.stream.send({ message: { $case: 'heartbeatAck', value: ack } });
  }
}

import type { runnersPb } from '@margay/contracts';

export interface HeldRun {
  sessionId: string;
  runId: string;
  epoch: number;
}

/** A runner process whose `Attach` stream ends at this replica. */
export class AttachedRunner {
  isDrained = false;
  /** Runs assigned to it or listed by it; `isListed`: a heartbeat has named it. */
  private readonly runs = new Map<string, { run: HeldRun; isListed: boolean }>();
  private freeSlots: number;

  constructor(
    readonly instance: string,
    readonly pool: string,
    slots: number,
    readonly generation: number,
    private readonly send: (message: runnersPb.AttachResponse) => void,
  ) {
    this.freeSlots = slots;
  }

  get free(): number {
    return this.isDrained ? 0 : this.freeSlots;
  }

  get held(): HeldRun[] {
    return [...this.runs.values()].map(({ run }) => run);
  }

  /** Before a claim: the slot counts as taken. */
  reserve(): void {
    this.freeSlots -= 1;
  }

  giveBack(): void {
    this.freeSlots += 1;
  }

  assign(assignment: runnersPb.Assign): void {
    const { sessionId, runId, epoch } = assignment;
    this.runs.set(runId, { run: { sessionId, runId, epoch }, isListed: false });
    this.send({ message: { $case: 'assign', value: assignment } });
  }

  revoke(run: HeldRun, reason: string): void {
    this.runs.delete(run.runId);
    this.send({ message: { $case: 'revoke', value: { ...run, reason } } });
  }

  /** What the runner says it holds. Assignments that it can't have seen yet stay counted. */
  onHeartbeat(freeSlots: number, listed: HeldRun[]): void {
    const ids = new Set(listed.map(({ runId }) => runId));
    for (const [runId, { isListed }] of this.runs) if (isListed && !ids.has(runId)) this.runs.delete(runId);
    for (const run of listed) this.runs.set(run.runId, { run, isListed: true });
    this.freeSlots = Math.max(0, freeSlots - (this.runs.size - listed.length));
  }

  /** @returns whether the run was here and has freed a slot */
  onRunLeft(runId: string): boolean {
    const wasHere = this.runs.delete(runId);
    if (wasHere) this.freeSlots += 1;
    return wasHere;
  }

  acknowledge(ack: runnersPb.HeartbeatAck): void {
    this.send({ message: { $case: 'heartbeatAck', value: ack } });
  }
}

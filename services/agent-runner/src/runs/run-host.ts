import { LRUCache } from 'lru-cache';
import type { runnersPb } from '@margay/contracts';
import type { Logger } from '@margay/platform';
import type { StopCause } from '@margay/engine';
import type { AttachHost } from '../attach/attach-client';
import { HostedRun, type HostedRunPorts } from './hosted-run';

/** (run, epoch) pairs remembered: one epoch, one life. */
const SEEN_MAX = 50_000;

export interface RunHostOptions {
  slots: number;
  ports: Omit<HostedRunPorts, 'logger'>;
  logger: Logger;
  /** A slot became free after none was. */
  onFreed: () => void;
}

/** The runs that this process drives. */
export class RunHost implements AttachHost {
  private readonly runs = new Map<string, HostedRun>();
  private readonly seen = new LRUCache<string, true>({ max: SEEN_MAX });
  private isDraining = false;

  constructor(private readonly options: RunHostOptions) {}

  freeSlots(): number {
    // More than the slots may be here: a replica just attached to has not heard yet how many are taken.
    return this.isDraining ? 0 : Math.max(0, this.options.slots - this.runs.size);
  }

  heldRuns(): runnersPb.HeldRun[] {
    return [...this.runs.values()].map(({ run }) => run);
  }

  onAssign(assign: runnersPb.Assign): void {
    const { sessionId, runId, epoch } = assign;
    const life = `${runId} ${epoch}`;
    // A second life of an epoch, or an assignment that crossed the drain: it is missing from the beats and goes back.
    if (this.seen.has(life) || this.isDraining) return;
    this.seen.set(life, true);
    this.runs.get(runId)?.stop('fenced');
    const logger = this.options.logger.child({ sessionId, runId });
    const hosted = new HostedRun(assign, { ...this.options.ports, logger });
    this.runs.set(runId, hosted);
    void hosted.drive().finally(() => {
      const wasFull = this.freeSlots() === 0;
      if (this.runs.get(runId) === hosted) this.runs.delete(runId);
      if (wasFull && this.freeSlots() > 0) this.options.onFreed();
    });
  }

  onRevoke({ runId, epoch }: runnersPb.Revoke): void {
    const hosted = this.runs.get(runId);
    if (hosted?.run.epoch === epoch) hosted.stop('fenced');
  }

  onGrant({ runId, epoch, grant }: runnersPb.RenewedGrant): void {
    const hosted = this.runs.get(runId);
    if (hosted?.run.epoch === epoch) hosted.renew(grant);
  }

  onSilence(): void {
    this.stopAll('fenced');
  }

  /** Hands every run back to the queue. */
  async drain(): Promise<void> {
    this.isDraining = true;
    const ended = [...this.runs.values()].map((hosted) => hosted.ended);
    this.stopAll('drained');
    await Promise.all(ended);
  }

  private stopAll(cause: StopCause): void {
    for (const hosted of this.runs.values()) hosted.stop(cause);
  }
}

import { LRUCache } from 'lru-cache';
import type { runnersPb } from '@margay/contracts';
import type { Logger } from '@margay/platform';
import type { StopCause } from '@margay/engine';
import type { AttachHost } from '../attach/attach-client';
import { HostedRun, type HostedRunPorts } from './hosted-run';
import { LostRuns } from './lost-runs';
import type { DrivenRun, RunEnd, RunLife } from './run-end';

/** (run, epoch) pairs remembered: one epoch, one life. */
const SEEN_MAX = 50_000;
/** Runs remembered for having failed outside the engine. */
const FAILED_MAX = 10_000;

export interface RunHostOptions {
  slots: number;
  ports: HostedRunPorts;
  /** Makes a run that is driven in a process apart. */
  isolate: (life: RunLife) => DrivenRun;
  logger: Logger;
  /** A slot became free after none was, or a run was lost: the session service should hear of it. */
  onChanged: () => void;
}

interface Held {
  driven: DrivenRun;
  left: Promise<void>;
}

/** The runs of this runner. */
export class RunHost implements AttachHost {
  private readonly runs = new Map<string, Held>();
  private readonly lost = new LostRuns();
  private readonly seen = new LRUCache<string, true>({ max: SEEN_MAX });
  /** How often runs failed here outside the engine, one time after the other. */
  private readonly failures = new LRUCache<string, number>({ max: FAILED_MAX });
  private isDraining = false;

  constructor(private readonly options: RunHostOptions) {}

  freeSlots(): number {
    // More than the slots may be here: a replica just attached to has not heard yet how many are taken.
    return this.isDraining ? 0 : Math.max(0, this.options.slots - this.runs.size);
  }

  heldRuns(): runnersPb.HeldRun[] {
    return [...this.lost.held(), ...[...this.runs.values()].map(({ driven }) => driven.run)];
  }

  lostRuns(): runnersPb.RunDied[] {
    return this.lost.all();
  }

  onAssign(assign: runnersPb.Assign): void {
    const { sessionId, runId, epoch } = assign;
    const life = `${runId} ${epoch}`;
    // A second life of an epoch, or an assignment that crossed the drain: it is missing from the beats and goes back.
    if (this.seen.has(life) || this.isDraining) return;
    this.seen.set(life, true);
    this.runs.get(runId)?.driven.stop('fenced');
    // Its log has moved on, so it was heard.
    this.lost.forget(runId);
    const logger = this.options.logger.child({ sessionId, runId });
    this.host({ assign, failures: this.failures.get(runId) ?? 0, logger });
  }

  onRevoke({ runId, epoch }: runnersPb.Revoke): void {
    this.lost.forget(runId, epoch);
    const held = this.runs.get(runId);
    if (held?.driven.run.epoch === epoch) held.driven.stop('fenced');
  }

  onGrant({ runId, epoch, grant }: runnersPb.RenewedGrant): void {
    const held = this.runs.get(runId);
    if (held?.driven.run.epoch === epoch) held.driven.renew(grant);
  }

  onSilence(): void {
    this.stopAll('fenced');
  }

  /** Hands every run back to the queue. */
  async drain(): Promise<void> {
    this.isDraining = true;
    const left = [...this.runs.values()].map((held) => held.left);
    this.stopAll('drained');
    await Promise.all(left);
  }

  private host(life: RunLife): void {
    const { isolate, ports } = this.options;
    const { runId, isolated } = life.assign;
    const driven = isolated ? isolate(life) : new HostedRun(life, ports);
    const held: Held = { driven, left: driven.drive().then((end) => this.onLeft(held, end)) };
    this.runs.set(runId, held);
  }

  private onLeft(held: Held, end: RunEnd): void {
    const { run } = held.driven;
    const wasFull = this.freeSlots() === 0;
    if (this.runs.get(run.runId) === held) this.runs.delete(run.runId);
    if (end.kind === 'left') this.failures.delete(run.runId);
    else this.failures.set(run.runId, (this.failures.get(run.runId) ?? 0) + 1);
    if (end.kind === 'lost') this.lost.add({ ...run, detail: end.detail });
    if (end.kind === 'lost' || (wasFull && this.freeSlots() > 0)) this.options.onChanged();
  }

  private stopAll(cause: StopCause): void {
    for (const { driven } of this.runs.values()) driven.stop(cause);
  }
}

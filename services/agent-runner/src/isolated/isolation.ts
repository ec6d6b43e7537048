import PQueue from 'p-queue';
import type { DrivenRun, RunLife } from '../runs/run-end';
import { startChild, type ChildOptions } from './child-process';
import { IsolatedRun, type IsolatedOutcome } from './isolated-run';

const STOP_GRACE_MS = 1_000;

export interface IsolationOptions extends ChildOptions {
  /** Processes at once; further runs wait here for a place. */
  places: number;
  instance: string;
  /** A process that was told to stop and has not ended by then is ended; default 1 s. */
  stopGraceMs?: number;
  onEnded: (outcome: IsolatedOutcome) => void;
}

/** Makes runs that are driven in processes of their own, so many at once. */
export class Isolation {
  private readonly queue: PQueue;

  constructor(private readonly options: IsolationOptions) {
    this.queue = new PQueue({ concurrency: options.places });
  }

  isolate(life: RunLife): DrivenRun {
    const { heapMb, instance, stopGraceMs = STOP_GRACE_MS, onEnded } = this.options;
    return new IsolatedRun(life, {
      place: (work, signal) => this.queue.add(work, { signal }),
      start: () => startChild(this.options),
      heapMb,
      instance,
      stopGraceMs,
      onEnded,
    });
  }
}

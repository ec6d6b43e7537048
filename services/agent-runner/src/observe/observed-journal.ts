import { Journal, type OpenedRun, type Progress } from '@margay/engine';

type Closing = Parameters<Journal['finish']>[1];
type Delta = Parameters<Journal['delta']>[0];

export interface JournalListener {
  /** A result that says that nobody knows what became of the call. */
  onUnknown(callId: string): void;
  /** The journal is open, or it is known why not. */
  onOpenSettled(): void;
  onOpened?(opened: OpenedRun): void;
}

/** A journal; each tool result that says that nobody knows what became of the call is counted once it is to be stored. */
export class ObservedJournal extends Journal {
  constructor(
    private readonly journal: Journal,
    private readonly listener: JournalListener,
  ) {
    super();
  }

  open(): Promise<OpenedRun> {
    const opened = this.journal.open().finally(() => this.listener.onOpenSettled());
    return opened.then((run) => {
      this.listener.onOpened?.(run);
      return run;
    });
  }

  commit(progress: Progress): Promise<number> {
    this.look(progress);
    return this.journal.commit(progress);
  }

  finish(progress: Progress, closing: Closing): Promise<'finished' | 'inbox'> {
    this.look(progress);
    return this.journal.finish(progress, closing);
  }

  wait(waiting: Parameters<Journal['wait']>[0]): Promise<'released' | 'changed'> {
    return this.journal.wait(waiting);
  }

  delta(delta: Delta): void {
    this.journal.delta(delta);
  }

  private look({ events }: Progress): void {
    for (const { type, payload } of events)
      if (type === 'tool_result' && payload.outcome === 'unknown') this.listener.onUnknown(payload.tool_call_id ?? '');
  }
}

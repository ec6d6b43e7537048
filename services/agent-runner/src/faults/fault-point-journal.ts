import { Journal, type OpenedRun, type Progress } from '@margay/engine';
import { faultPoint, type FaultPointName } from '@margay/platform';
import type { OwnedRun } from '../journal/grpc-journal';

type Closing = Parameters<Journal['finish']>[1];
type Step = { before: FaultPointName; after: FaultPointName };

const COMMIT_A: Step = { before: 'runner.before-commit-a', after: 'runner.after-commit-a' };
const COMMIT_B: Step = { before: 'runner.before-commit-b', after: 'runner.after-commit-b' };
const FINAL_COMMIT: Step = { before: 'runner.before-final-commit', after: 'runner.after-final-commit' };

/** A journal with fault points around its commits. */
export class FaultPointJournal extends Journal {
  /** Set once a fault has held up a commit: those behind it keep their order. */
  private held: Promise<void> | undefined;

  constructor(
    private readonly journal: Journal,
    private readonly run: OwnedRun,
  ) {
    super();
  }

  open(): Promise<OpenedRun> {
    return this.journal.open();
  }

  commit(progress: Progress): Promise<number> {
    const send = (): Promise<number> => this.journal.commit(progress);
    const step = stepOf(progress);
    return step ? this.around(step, progress.events, send) : this.inOrder(send);
  }

  finish(progress: Progress, closing: Closing): Promise<'finished' | 'inbox'> {
    return this.around(FINAL_COMMIT, [...progress.events, closing], () => this.journal.finish(progress, closing));
  }

  wait(waiting: Parameters<Journal['wait']>[0]): Promise<'released' | 'changed'> {
    return this.inOrder(() => this.journal.wait(waiting));
  }

  delta(delta: Parameters<Journal['delta']>[0]): void {
    this.journal.delta(delta);
  }

  private async around<T>({ before, after }: Step, content: unknown, send: () => Promise<T>): Promise<T> {
    const { sessionId, runId } = this.run;
    const detail = (): string => `${sessionId} ${runId} ${JSON.stringify(content)}`;
    const pause = faultPoint(before, detail);
    if (pause) this.held = Promise.all([this.held, pause]).then(() => undefined);
    const sent = await this.inOrder(send);
    await faultPoint(after, detail);
    return sent;
  }

  private inOrder<T>(send: () => Promise<T>): Promise<T> {
    return this.held ? this.held.then(send) : send();
  }
}

function stepOf({ events }: Progress): Step | undefined {
  if (events.some(({ type }) => type === 'tool_call')) return COMMIT_A;
  return events.some(({ type }) => type === 'tool_result') ? COMMIT_B : undefined;
}

import { InternalError } from '@margay/errors';
import {
  inlineBlobs,
  offloadCommand,
  unpackRecord,
  type BlobStore,
  type CommitLoop,
  type CommitOutcome,
  type CommitStore,
  type Completion,
  type Head,
  type LogRecord,
  type RunnerCommand,
} from '@margay/log';
import { Journal, RunStopped, type Clock, type Ids, type JournalRecord, type OpenedRun, type Progress } from '../ports';
import type { LogInbox } from './log-inbox';

type Delta = Parameters<Journal['delta']>[0];

export interface LogJournalOptions {
  loop: CommitLoop;
  store: CommitStore;
  blobs: BlobStore;
  clock: Clock;
  ids: Ids;
  inbox: LogInbox;
  tenantId: string;
  sessionId: string;
  runId: string;
  /** The claim's. */
  epoch: number;
  onDelta?: (delta: Delta) => void;
}

const READ_AGAIN_MS = 5;

/** The journal of one run, written straight into a commit loop. */
export class LogJournal extends Journal {
  /** Commands reach the loop in the order of the calls, whatever their blobs take. */
  private submitting: Promise<unknown> = Promise.resolve();

  constructor(private readonly options: LogJournalOptions) {
    super();
  }

  async open(): Promise<OpenedRun> {
    const { clock, epoch, runId, inbox } = this.options;
    const records: JournalRecord[] = [];
    let head: Head | undefined;
    for (;;) {
      head = await this.read(records, (head?.c ?? 0) + 1, head);
      if (head && head.epoch >= epoch) break;
      await clock.sleep(READ_AGAIN_MS);
    }
    if (head.epoch > epoch || head.run?.id !== runId) throw new RunStopped('fenced');
    const consumedTo = head.run.consumedTo;
    inbox.restore(
      records
        .map(({ record }) => record)
        .filter(isInbox)
        .filter(({ n }) => n > consumedTo),
    );
    return { head, records };
  }

  async commit(progress: Progress): Promise<number> {
    const outcome = await this.submit(progress, (scope, all) => ({ kind: 'step', ...scope, ...all }));
    if (outcome.ok) return outcome.c;
    throw refused(outcome.rejection);
  }

  async finish(progress: Progress, closing: { text: string; completion: Completion }): Promise<'finished' | 'inbox'> {
    const outcome = await this.submit(progress, (scope, { events, records }) => {
      const consumed = progress.consumedTo === undefined ? {} : { consumedTo: progress.consumedTo };
      return { kind: 'finish', ...scope, events, records, ...consumed, ...closing };
    });
    if (outcome.ok) return 'finished';
    if (outcome.rejection.reason === 'inbox') return 'inbox';
    throw refused(outcome.rejection);
  }

  async wait(waiting: { for: string[]; inboxEnd: number }): Promise<'released' | 'changed'> {
    const nothing = { events: [], records: [] };
    const outcome = await this.submit(nothing, (scope) => ({ kind: 'release', ...scope, cause: 'waiting', waiting }));
    if (outcome.ok) return 'released';
    if (outcome.rejection.reason === 'changed') return 'changed';
    throw refused(outcome.rejection);
  }

  delta(delta: Delta): void {
    this.options.onDelta?.(delta);
  }

  private async submit(
    progress: Progress,
    toCommand: (scope: { commitId: string; runId: string; epoch: number }, progress: Progress) => RunnerCommand,
  ): Promise<CommitOutcome> {
    const { loop, ids, tenantId, sessionId, runId, epoch, blobs, inbox } = this.options;
    const scope = { commitId: ids.hex(24), runId, epoch };
    const previous = this.submitting;
    const submitted = (async () => {
      const command = await offloadCommand(tenantId, toCommand(scope, progress), blobs);
      await previous;
      return { outcome: loop.submit(sessionId, command) };
    })();
    // After one that could not be prepared nothing may follow: the log would have a hole.
    this.submitting = submitted.then(() => undefined);
    this.submitting.catch(() => undefined); // told to its own caller
    const outcome = await (await submitted).outcome;
    await inbox.catchUp(outcome.head);
    return outcome;
  }

  private async read(records: JournalRecord[], from: number, known: Head | undefined): Promise<Head | undefined> {
    const { store, sessionId, tenantId, blobs } = this.options;
    let head = known;
    for await (const document of store.range(sessionId, from)) {
      const frames = document.events.map(({ frame }) => frame);
      for (const text of document.records) {
        const record = unpackRecord(text, frames);
        records.push({ c: document.c, record: await inlineBlobs(tenantId, record, blobs) });
      }
      head = document.head;
    }
    return head;
  }
}

function isInbox(record: JournalRecord['record']): record is Extract<LogRecord, { kind: 'inbox' }> {
  return record.kind === 'inbox';
}

function refused({ reason, message }: { reason: string; message: string }): Error {
  if (reason === 'fenced') return new RunStopped('fenced');
  return new InternalError('commit_refused', `the log refused a commit of the run: ${message}`, {
    details: { reason },
  });
}

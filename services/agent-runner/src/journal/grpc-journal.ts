import { AsyncLocalStorage } from 'node:async_hooks';
import type { runnersPb } from '@margay/contracts';
import { InternalError, isMargayError, type MargayError } from '@margay/errors';
import {
  Journal,
  RunStopped,
  toItem,
  type InboxItem,
  type JournalRecord,
  type OpenedRun,
  type Progress,
} from '@margay/engine';
import type { Completion, Head, LeaveCause, LogRecord, QuestionOutcome } from '@margay/log';
import type { GrpcClient, Logger } from '@margay/platform';
import { DeltaBuffer, type Delta } from './delta-buffer';
import type { GrpcInbox } from './grpc-inbox';
import { PendingCommits, RefusedCommit, type PendingCommit } from './pending-commits';

type RunnersClient = GrpcClient<typeof runnersPb.RunnersDefinition>;
type JournalStream = ReturnType<RunnersClient['journal']>;

export interface OwnedRun {
  sessionId: string;
  runId: string;
  epoch: number;
}

const RECONNECT_FIRST_MS = 20;
const RECONNECT_MAX_MS = 1_000;
/** After a busy or closing replica refused a command. */
const RESEND_MS = 100;
const RESENT_REASONS = new Set(['session_busy', 'closing', 'deadline']);
/** What was sent, or the log as it is, would be refused by every replica. */
const FAULTY_CODES = new Set(['INVALID_ARGUMENT', 'PERMISSION_DENIED', 'FAILED_PRECONDITION', 'UNIMPLEMENTED']);
/** A log whose opening fails inside the session service so often in a row will not open. */
const OPENINGS_MAX = 5;

export interface GrpcJournalOptions {
  client: RunnersClient;
  run: OwnedRun;
  /** The newest grant of the run. */
  grant: () => string;
  inbox: GrpcInbox;
  logger: Logger;
}

/**
 * The session log over a `Journal` stream. The stream reconnects and resumes: commands without an answer are sent again
 * with their ids, in order, so each is stored once.
 */
export class GrpcJournal extends Journal {
  private stream?: JournalStream;
  private readonly pending = new PendingCommits();
  private readonly deltas = new DeltaBuffer((delta) => this.sendDelta(delta));
  /** Streams are opened in the trace of the run, whatever the events are handled in that call for them. */
  private inTrace: <T>(fn: () => T) => T = (fn) => fn();
  private count = 0;
  /** Commits up to this number are known here. */
  private knownC = 0;
  /** Messages up to this number were in the conversation when the run came here. */
  private consumedBefore?: number;
  private isReady = false;
  /** Why nothing can be written any more. */
  private over?: Error;
  private reconnectMs = RECONNECT_FIRST_MS;
  private records: JournalRecord[] = [];
  private opening?: { resolve: (opened: OpenedRun) => void; reject: (error: Error) => void };
  private failedOpenings = 0;
  private timer?: NodeJS.Timeout;

  constructor(private readonly options: GrpcJournalOptions) {
    super();
    options.inbox.stop.addEventListener('abort', () => this.onStop(), { once: true });
  }

  open(): Promise<OpenedRun> {
    return new Promise((resolve, reject) => {
      if (this.over) return reject(this.over);
      this.opening = { resolve, reject };
      this.inTrace = AsyncLocalStorage.snapshot();
      this.connect();
    });
  }

  commit(progress: Progress): Promise<number> {
    return this.send({ kind: 'step', ...progress });
  }

  async finish(progress: Progress, closing: { text: string; completion: Completion }): Promise<'finished' | 'inbox'> {
    this.deltas.flush();
    try {
      await this.send({ kind: 'finish', ...progress, ...closing });
      return 'finished';
    } catch (error) {
      if (error instanceof RefusedCommit && error.reason === 'inbox') return 'inbox';
      throw error;
    }
  }

  async wait(waiting: { for: string[]; inboxEnd: number }): Promise<'released' | 'changed'> {
    this.deltas.flush();
    try {
      await this.send({ kind: 'release', cause: 'waiting', waiting });
      return 'released';
    } catch (error) {
      if (error instanceof RefusedCommit && error.reason === 'changed') return 'changed';
      throw error;
    }
  }

  /** Gives the run back to the queue. Works after a stop for draining. */
  async release(cause: LeaveCause): Promise<void> {
    await this.send({ kind: 'release', cause });
  }

  delta(delta: Delta): void {
    if (!this.over && !this.options.inbox.stop.aborted) this.deltas.add(delta);
  }

  close(): void {
    this.deltas.flush();
    this.end(new RunStopped('fenced'));
  }

  private send(command: { kind: 'step' | 'finish' | 'release'; [field: string]: unknown }): Promise<number> {
    if (this.over) return Promise.reject(this.over);
    const { runId, epoch } = this.options.run;
    this.count += 1;
    const commitId = `${runId}.${epoch}.${this.count}`;
    return new Promise((committed, refused) => {
      const pending = { commitId, commandJson: JSON.stringify(command), committed, refused };
      this.pending.add(pending);
      if (this.isReady) this.write(pending);
    });
  }

  private write({ commitId, commandJson }: PendingCommit): void {
    this.stream?.write({ message: { $case: 'commit', value: { commitId, commandJson } } });
  }

  private sendDelta(delta: Delta): void {
    if (this.isReady) this.stream?.write({ message: { $case: 'delta', value: delta } });
  }

  private connect(): void {
    const { client, run, grant } = this.options;
    const stream = this.inTrace(() => client.journal({ grant: grant() }));
    this.stream = stream;
    // What an earlier stream had begun to tell is told again.
    this.records = [];
    stream.on('data', ({ message }) => {
      if (this.stream === stream) this.heard(message);
    });
    stream.on('error', (error: Error) => this.onLost(stream, error));
    stream.on('end', () => this.onLost(stream));
    stream.write({ message: { $case: 'open', value: { ...run, grant: grant(), haveC: this.knownC } } });
  }

  private onLost(stream: JournalStream, error?: Error): void {
    if (this.over || this.stream !== stream) return;
    this.isReady = false;
    delete this.stream;
    clearTimeout(this.timer);
    if (isMargayError(error) && this.isFaulty(error)) this.onFaulty(error.reason, error);
    else this.options.logger.debug({ err: error, runId: this.options.run.runId }, 'the Journal stream failed');
    this.timer = setTimeout(() => this.connect(), this.reconnectMs * (0.5 + Math.random()));
    this.reconnectMs = Math.min(this.reconnectMs * 2, RECONNECT_MAX_MS);
  }

  private isFaulty({ code }: MargayError): boolean {
    if (this.opening && code === 'INTERNAL') this.failedOpenings += 1;
    return FAULTY_CODES.has(code) || this.failedOpenings >= OPENINGS_MAX;
  }

  /** Sent again it would end the next stream too: it has failed. */
  private onFaulty(reason: string, error: Error): void {
    this.options.logger.error(
      { err: error, runId: this.options.run.runId },
      'the session service refuses this journal',
    );
    this.opening?.reject(error);
    delete this.opening;
    this.pending.refuseAll(new RefusedCommit(reason, error.message));
  }

  /** A message that can't be understood ends this run here, and nothing else. */
  private heard(message: runnersPb.JournalResponse['message']): void {
    try {
      this.onMessage(message);
    } catch (error) {
      this.options.logger.error({ err: error, runId: this.options.run.runId }, 'a Journal message is not understood');
      this.end(error as Error);
    }
  }

  private onMessage(message: runnersPb.JournalResponse['message']): void {
    const { inbox } = this.options;
    switch (message?.$case) {
      case 'opened':
        return this.onOpened(message.value);
      case 'committed':
        this.knownC = Math.max(this.knownC, message.value.c);
        return this.pending.committed(message.value.commitId, message.value.c);
      case 'rejected':
        return this.onRejected(message.value);
      case 'inbox':
        return inbox.add(message.value.items.map(inboxItem));
      case 'cancel':
        inbox.stopFor('canceled');
        return this.end(new RunStopped('canceled'));
      case 'fenced':
        inbox.stopFor('fenced');
        return this.end(new RunStopped('fenced'));
      case undefined:
        return;
    }
  }

  private onOpened({ records, last, headJson }: runnersPb.JournalOpened): void {
    for (const { c, json } of records) this.records.push({ c, record: JSON.parse(json) as JournalRecord['record'] });
    if (!last) return;
    const head = JSON.parse(headJson) as Head;
    const read = this.records;
    this.records = [];
    const consumedBefore = (this.consumedBefore ??= head.run?.consumedTo ?? 0);
    this.options.inbox.add(unreadItems(read, consumedBefore));
    const isWhole = this.options.inbox.holds(consumedBefore, head.inboxEnd);
    if (!isWhole && this.knownC > 0) return this.readAgain();
    this.knownC = head.c;
    this.isReady = true;
    this.reconnectMs = RECONNECT_FIRST_MS;
    this.failedOpenings = 0;
    for (const pending of this.pending.all()) this.write(pending);
    this.opening?.resolve({ head, records: read });
    delete this.opening;
  }

  /** A message was announced on a stream that was cut, and lies before commits that are known: read from the start. */
  private readAgain(): void {
    const { stream } = this;
    this.knownC = 0;
    delete this.stream;
    stream?.end();
    this.timer = setTimeout(() => this.connect(), this.reconnectMs);
    this.reconnectMs = Math.min(this.reconnectMs * 2, RECONNECT_MAX_MS);
  }

  private onRejected({ commitId, reason, message }: runnersPb.JournalRejected): void {
    if (!RESENT_REASONS.has(reason)) return this.pending.refused(commitId, new RefusedCommit(reason, message));
    // The same commands again, there or elsewhere, all of them: their order must stay.
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      if (this.isReady) for (const pending of this.pending.all()) this.write(pending);
    }, RESEND_MS);
  }

  /** A run that is to be handed over still has its last words. */
  private onStop(): void {
    const stopped = this.options.inbox.stop.reason as RunStopped;
    if (stopped.stopCause !== 'drained') this.end(stopped);
  }

  private end(error: Error): void {
    if (this.over) return;
    this.over = error;
    this.isReady = false;
    clearTimeout(this.timer);
    this.opening?.reject(error);
    delete this.opening;
    this.pending.refuseAll(error);
    this.stream?.end();
  }
}

function inboxItem({ n, kind, text, callId, outcome }: runnersPb.InboxItem): InboxItem {
  if (kind === 'answer') return { n, kind, text, callId, outcome: outcome as QuestionOutcome };
  if (kind !== 'steer' && kind !== 'interrupt')
    throw new InternalError('unknown_inbox_item', `inbox item ${n} is a ${kind}`);
  return { n, kind, text };
}

function unreadItems(records: JournalRecord[], consumedTo: number): InboxItem[] {
  return records.flatMap(({ record }) => {
    if (record.kind !== 'inbox') return [];
    const item = toItem(record as LogRecord & { kind: 'inbox' });
    return item.n > consumedTo ? [item] : [];
  });
}

import type { runnersPb } from '@margay/contracts';
import { InternalError } from '@margay/errors';
import { Journal, RunStopped, type InboxItem, type JournalRecord, type OpenedRun, type Progress } from '@margay/engine';
import type { Completion, Head, LogRecord } from '@margay/log';
import type { GrpcClient, Logger } from '@margay/platform';
import { DeltaBuffer, type Delta } from './delta-buffer';
import type { GrpcInbox } from './grpc-inbox';

type RunnersClient = GrpcClient<typeof runnersPb.RunnersDefinition>;
type JournalStream = ReturnType<RunnersClient['journal']>;

export interface OwnedRun {
  sessionId: string;
  runId: string;
  epoch: number;
}

interface PendingCommit {
  commitId: string;
  commandJson: string;
  committed: (c: number) => void;
  refused: (error: RefusedCommit) => void;
}

/** A command that the log refused for another reason than that the run has moved on. */
class RefusedCommit extends Error {
  constructor(
    readonly reason: string,
    message: string,
  ) {
    super(message);
  }
}

const RECONNECT_FIRST_MS = 20;
const RECONNECT_MAX_MS = 1_000;

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
  private readonly pending = new Map<string, PendingCommit>();
  private readonly deltas = new DeltaBuffer((delta) => this.sendDelta(delta));
  private count = 0;
  private knownC = 0;
  private isReady = false;
  private isClosed = false;
  private reconnectMs = RECONNECT_FIRST_MS;
  private records: JournalRecord[] = [];
  private opened?: { resolve: (opened: OpenedRun) => void; reject: (error: Error) => void };
  private reconnectTimer?: NodeJS.Timeout;

  constructor(private readonly options: GrpcJournalOptions) {
    super();
    options.inbox.stop.addEventListener('abort', () => this.onStop(), { once: true });
  }

  open(): Promise<OpenedRun> {
    return new Promise((resolve, reject) => {
      this.opened = { resolve, reject };
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

  /** Gives the run back to the queue. Works after a stop for draining. */
  async release(cause: string): Promise<void> {
    await this.send({ kind: 'release', cause });
  }

  delta(delta: Delta): void {
    if (!this.options.inbox.stop.aborted) this.deltas.add(delta);
  }

  close(): void {
    this.isClosed = true;
    clearTimeout(this.reconnectTimer);
    this.deltas.flush();
    this.stream?.end();
    this.failPending(new RunStopped('fenced'));
  }

  private send(command: { kind: 'step' | 'finish' | 'release'; [field: string]: unknown }): Promise<number> {
    const { stop } = this.options.inbox;
    const isOver = stop.aborted && (stop.reason as RunStopped).stopCause !== 'drained';
    if (isOver || this.isClosed)
      return Promise.reject(stop.aborted ? (stop.reason as Error) : new RunStopped('fenced'));
    const { runId, epoch } = this.options.run;
    this.count += 1;
    const commitId = `${runId}.${epoch}.${this.count}`;
    return new Promise((committed, refused) => {
      const pending = { commitId, commandJson: JSON.stringify(command), committed, refused };
      this.pending.set(commitId, pending);
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
    const { client, run, grant, logger } = this.options;
    const stream = client.journal({ grant: grant() });
    this.stream = stream;
    stream.on('data', ({ message }) => this.onMessage(message));
    stream.on('error', (error: Error) => {
      logger.debug({ err: error, runId: run.runId }, 'the Journal stream failed');
      this.reconnectAfter(stream);
    });
    stream.on('end', () => this.reconnectAfter(stream));
    stream.write({ message: { $case: 'open', value: { ...run, grant: grant(), haveC: this.knownC } } });
  }

  private reconnectAfter(stream: JournalStream): void {
    if (this.isClosed || this.stream !== stream || this.isStopped()) return;
    this.isReady = false;
    delete this.stream;
    this.reconnectTimer = setTimeout(() => this.connect(), this.reconnectMs * (0.5 + Math.random()));
    this.reconnectMs = Math.min(this.reconnectMs * 2, RECONNECT_MAX_MS);
  }

  private isStopped(): boolean {
    const { stop } = this.options.inbox;
    return stop.aborted && (stop.reason as RunStopped).stopCause !== 'drained';
  }

  private onMessage(message: runnersPb.JournalResponse['message']): void {
    switch (message?.$case) {
      case 'opened':
        return this.onOpened(message.value);
      case 'committed':
        return this.onCommitted(message.value);
      case 'rejected':
        return this.onRejected(message.value);
      case 'inbox':
        return this.options.inbox.add(message.value.items.map(inboxItem));
      case 'cancel':
        return this.options.inbox.stopFor('canceled');
      case 'fenced':
        return this.options.inbox.stopFor('fenced');
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
    this.knownC = head.c;
    this.isReady = true;
    this.reconnectMs = RECONNECT_FIRST_MS;
    this.options.inbox.add(unreadItems(read, head.run?.consumedTo ?? 0));
    for (const pending of this.pending.values()) this.write(pending);
    this.opened?.resolve({ head, records: read });
    delete this.opened;
  }

  private onCommitted({ commitId, c }: runnersPb.JournalCommitted): void {
    const pending = this.pending.get(commitId);
    this.pending.delete(commitId);
    this.knownC = Math.max(this.knownC, c);
    pending?.committed(c);
  }

  private onRejected({ commitId, reason, message }: runnersPb.JournalRejected): void {
    const pending = this.pending.get(commitId);
    if (!pending) return;
    // A busy or closing replica: the same command again, there or elsewhere.
    if (reason === 'session_busy' || reason === 'closing' || reason === 'deadline') {
      setTimeout(
        () => this.isReady && this.pending.has(commitId) && this.write(pending),
        RECONNECT_FIRST_MS * 5,
      ).unref();
      return;
    }
    this.pending.delete(commitId);
    pending.refused(new RefusedCommit(reason, message));
  }

  private onStop(): void {
    const { stop } = this.options.inbox;
    if (!this.isStopped()) return;
    const error = stop.reason as RunStopped;
    this.opened?.reject(error);
    delete this.opened;
    this.failPending(error);
    this.stream?.end();
  }

  private failPending(error: Error): void {
    for (const { refused } of this.pending.values()) refused(error as RefusedCommit);
    this.pending.clear();
  }
}

function inboxItem({ n, kind, text }: runnersPb.InboxItem): InboxItem {
  if (kind !== 'steer' && kind !== 'interrupt')
    throw new InternalError('unknown_inbox_item', `inbox item ${n} is a ${kind}`);
  return { n, kind, text };
}

function unreadItems(records: JournalRecord[], consumedTo: number): InboxItem[] {
  return records.flatMap(({ record }) => {
    if (record.kind !== 'inbox') return [];
    const { n, item, text } = record as LogRecord & { kind: 'inbox' };
    return n > consumedTo ? [{ n, kind: item, text }] : [];
  });
}

import { unpackRecord, type CommitDocument, type CommitStore, type LogRecord } from '@margay/log';
import { Inbox, type InboxItem } from '../ports';

type InboxRecord = Extract<LogRecord, { kind: 'inbox' }>;

/** Messages to a run, found in the commits of its session. */
export class LogInbox extends Inbox {
  private readonly items: InboxItem[] = [];
  private readonly listeners = new Set<(item: InboxItem) => void>();
  private seenC: number;
  private end: number;

  constructor(
    private readonly store: CommitStore,
    private readonly sessionId: string,
    /** State of the log from which on it watches; unread items before it are added by `restore`. */
    head: { c: number; inboxEnd: number },
    readonly stop: AbortSignal,
  ) {
    super();
    this.seenC = head.c;
    this.end = head.inboxEnd;
  }

  since(afterN: number): InboxItem[] {
    return this.items.filter(({ n }) => n > afterN);
  }

  onItem(listener: (item: InboxItem) => void): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** Items of the log that were there when the run was opened. */
  restore(records: readonly InboxRecord[]): void {
    this.items.unshift(...records.filter(({ n }) => !this.has(n)).map(toItem));
  }

  /** A commit of this process; others are found by `catchUp`. */
  observe(document: CommitDocument): void {
    if (document.c === this.seenC + 1) this.take(document);
  }

  /** Reads what other processes committed, up to this state. */
  async catchUp(head: { c: number; inboxEnd: number }): Promise<void> {
    if (head.inboxEnd <= this.end) return;
    for await (const document of this.store.range(this.sessionId, this.seenC + 1, head.c)) this.observe(document);
  }

  private take(document: CommitDocument): void {
    this.seenC = document.c;
    if (document.head.inboxEnd === this.end) return;
    this.end = document.head.inboxEnd;
    const frames = document.events.map(({ frame }) => frame);
    for (const text of document.records) {
      const record = unpackRecord(text, frames);
      if (record.kind === 'inbox') this.add(toItem(record as unknown as InboxRecord));
    }
  }

  private has(n: number): boolean {
    return this.items.some((item) => item.n === n);
  }

  private add(item: InboxItem): void {
    if (this.has(item.n)) return;
    this.items.push(item);
    for (const listener of [...this.listeners]) listener(item);
  }
}

/** The item that a record of the log holds. */
export function toItem(record: InboxRecord): InboxItem {
  const { n, item, text } = record;
  if (item !== 'answer') return { n, kind: item, text };
  return { n, kind: item, text, callId: record.callId, outcome: record.outcome };
}

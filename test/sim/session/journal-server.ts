import { toItem, type InboxItem } from '@margay/engine';
import { readTip, unpackRecord, type CommitDocument, type Head, type LogRecord, type RunnerCommand } from '@margay/log';
import type { JournalLink } from '../runner/life-journal';
import type { RunLife } from '../runner/run-life';
import type { Replica } from './replica';

const PROBE_MS = 2_000;
/** Other commands than a runner's would fail after this; short, so that it matters here. */
const QUEUE_TIMEOUT_MS = 300;

interface OpenJournal {
  life: RunLife;
  link: JournalLink;
  /** Number of the newest commit that its runner was told about. */
  c: number;
  inboxEnd: number;
  isReading: boolean;
}

/** The session service's end of the runners' journals: opens them from the log, commits, and tells what others wrote. */
export class JournalServer {
  private readonly journals = new Set<OpenJournal>();
  /** Ids of commands by which owners end or give back their runs: those are answered, and not told besides. */
  private readonly endings = new Set<string>();

  constructor(private readonly replica: Replica) {}

  start(): void {
    const { replica } = this;
    replica.world.broker.subscribe(replica, { subjects: ['commit'] }, (message) => {
      if (message.kind === 'commit') this.onHead(message.head);
    });
  }

  open(life: RunLife, link: JournalLink): void {
    const { replica } = this;
    replica.spawn(async () => {
      const documents = await this.readOpened(life, link);
      if (!documents) return;
      const { head } = documents[documents.length - 1] as CommitDocument;
      const journal: OpenJournal = { life, link, c: head.c, inboxEnd: head.inboxEnd, isReading: false };
      this.journals.add(journal);
      link.onClose(replica, () => this.journals.delete(journal));
      link.send(life.runner, () => life.onOpened(link, documents));
      if (replica.world.has('watchJournal')) await this.watch(journal);
    });
  }

  async commit(life: RunLife, link: JournalLink, command: RunnerCommand): Promise<void> {
    if (command.kind !== 'step') this.endings.add(command.commitId);
    const outcome = await this.replica.submit(life.sessionId, command, QUEUE_TIMEOUT_MS);
    // What is not known to be stored, or why not, is repeated over another journal.
    if ('failed' in outcome) return link.close();
    if (!outcome.ok) this.endings.delete(command.commitId);
    link.send(life.runner, () => life.onAnswered(command.commitId, outcome));
    if (!outcome.ok) this.onHead(outcome.head);
  }

  /** Tells the runners of open journals about a newer head. */
  onHead(head: Head, commitIds: readonly string[] = []): void {
    const isEnding = commitIds.some((id) => this.endings.has(id));
    for (const journal of this.journals) {
      if (head.sessionId !== journal.life.sessionId || head.c <= journal.c) continue;
      if (isEnding) journal.c = head.c;
      else this.tell(journal, head);
    }
  }

  private tell(journal: OpenJournal, head: Head): void {
    const { life, link } = journal;
    if (head.run?.id !== life.runId || head.epoch !== life.epoch) {
      journal.c = head.c;
      const isCanceled = head.lastRun?.id === life.runId && head.lastRun.doneReason === 'canceled';
      link.send(life.runner, () => life.stop(isCanceled ? 'canceled' : 'fenced'));
    } else if (head.inboxEnd === journal.inboxEnd) journal.c = head.c;
    else if (!journal.isReading) this.replica.spawn(() => this.tellItems(journal));
  }

  /** What cannot be read now is found by the next probe. */
  private async tellItems(journal: OpenJournal): Promise<void> {
    const { life, link } = journal;
    journal.isReading = true;
    try {
      for await (const document of this.replica.store.range(life.sessionId, journal.c + 1)) {
        if (document.c !== journal.c + 1) break;
        const items = itemsOf(document);
        if (items.length > 0) link.send(life.runner, () => life.onInbox(items));
        journal.c = document.c;
        journal.inboxEnd = document.head.inboxEnd;
      }
    } catch {
      this.replica.world.count('messages could not be read');
    }
    journal.isReading = false;
  }

  /** The log as the owner of this (run, epoch) may use it; undefined where the run is not its own any more. */
  private async readOpened(life: RunLife, link: JournalLink): Promise<CommitDocument[] | undefined> {
    const { replica } = this;
    const { world } = replica;
    while (link.isOpen) {
      const documents = await this.readLog(life.sessionId);
      const head = documents[documents.length - 1]?.head;
      const isOwn = head?.run?.id === life.runId && head.run.state === 'running' && head.epoch === life.epoch;
      if (head && (isOwn || !world.has('openFromClaim'))) return documents;
      // Epochs only grow: a higher one proves that this one is over, a lower one that the read is behind.
      if (head && head.epoch > life.epoch) {
        link.send(life.runner, () => life.stop('fenced'));
        return undefined;
      }
      await replica.sleep(world.random.between(5, 50));
    }
    return undefined;
  }

  private readLog(sessionId: string): Promise<CommitDocument[]> {
    const { store } = this.replica;
    return store.persist(async () => {
      const documents: CommitDocument[] = [];
      for await (const document of store.range(sessionId, 1)) documents.push(document);
      return documents;
    });
  }

  /** Finds by itself what no message told. */
  private async watch(journal: OpenJournal): Promise<void> {
    const { replica } = this;
    const { store, world } = replica;
    const { sessionId } = journal.life;
    while (journal.link.isOpen) {
      await replica.sleep(PROBE_MS);
      try {
        if (!(await store.readNumber(sessionId, journal.c + 1))) continue;
        const tip = await readTip(store, sessionId);
        replica.loop.observe(sessionId, tip);
        this.onHead(tip.head);
      } catch {
        world.count('journal probe failed');
      }
    }
  }
}

function itemsOf({ events, records }: CommitDocument): InboxItem[] {
  const frames = events.map(({ frame }) => frame);
  return records
    .map((text) => unpackRecord(text, frames))
    .filter((record): record is LogRecord & { kind: 'inbox' } => record.kind === 'inbox')
    .map(toItem);
}

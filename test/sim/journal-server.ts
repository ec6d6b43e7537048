import { readTip, tipOf, type CommitDocument, type Head, type RunnerCommand } from '@margay/log';
import type { Replica } from './replica';
import type { JournalLink, RunLife } from './run-life';

const PROBE_MS = 2_000;
/** Other commands than a runner's would fail after this; short, so that it matters here. */
const QUEUE_TIMEOUT_MS = 300;

interface OpenJournal {
  life: RunLife;
  link: JournalLink;
  /** Number of the newest commit that its runner was told about. */
  c: number;
}

/** The session service's end of the runners' journals: opens them from the log, commits, and tells what others wrote. */
export class JournalServer {
  private readonly journals = new Set<OpenJournal>();

  constructor(private readonly replica: Replica) {}

  start(): void {
    const { replica } = this;
    replica.world.broker.subscribe(replica, (message) => {
      if (message.kind === 'commit') this.onHead(message.head);
    });
  }

  open(life: RunLife, link: JournalLink): void {
    const { replica } = this;
    replica.spawn(async () => {
      const documents = await this.readOpened(life, link);
      if (!documents) return;
      const head = (documents[documents.length - 1] as CommitDocument).head;
      const journal: OpenJournal = { life, link, c: head.c };
      this.journals.add(journal);
      link.onClose(replica, () => this.journals.delete(journal));
      link.send(life.runner, () => life.onOpened(link, documents));
      if (replica.world.has('watchJournal')) await this.watch(journal);
    });
  }

  async commit(life: RunLife, link: JournalLink, command: RunnerCommand): Promise<void> {
    const outcome = await this.replica.submit(command, QUEUE_TIMEOUT_MS);
    // What is not known to be stored, or why not, is repeated over another journal.
    if ('failed' in outcome) return link.close();
    link.send(life.runner, () => life.onAnswered(command.commitId, outcome));
  }

  /** Tells the runners of open journals about a newer head. */
  onHead(head: Head): void {
    for (const journal of this.journals) {
      if (head.c <= journal.c) continue;
      journal.c = head.c;
      const { life, link } = journal;
      const isOver = head.run?.id !== life.runId || head.epoch !== life.epoch;
      link.send(life.runner, () => (isOver ? life.onFenced() : life.onInbox(head.inboxEnd)));
    }
  }

  /** The log as the owner of this (run, epoch) may use it; undefined where the run is not its own any more. */
  private async readOpened(life: RunLife, link: JournalLink): Promise<CommitDocument[] | undefined> {
    const { replica } = this;
    const { world } = replica;
    while (link.isOpen) {
      const documents = await this.readLog();
      const head = documents[documents.length - 1]?.head;
      const isOwn = head?.run?.id === life.runId && head.run.state === 'running' && head.epoch === life.epoch;
      if (head && (isOwn || !world.has('openFromClaim'))) return documents;
      // Epochs only grow: a higher one proves that this one is over, a lower one that the read is behind.
      if (head && head.epoch > life.epoch) {
        link.send(life.runner, () => life.onFenced());
        return undefined;
      }
      await replica.sleep(world.random.between(5, 50));
    }
    return undefined;
  }

  private readLog(): Promise<CommitDocument[]> {
    const { store, world } = this.replica;
    return store.persist(async () => {
      const documents: CommitDocument[] = [];
      for await (const document of store.range(world.sessionId, 1)) documents.push(document);
      return documents;
    });
  }

  /** Finds by itself what no message told. */
  private async watch(journal: OpenJournal): Promise<void> {
    const { replica } = this;
    const { store, world } = replica;
    while (journal.link.isOpen) {
      await replica.sleep(PROBE_MS);
      try {
        const next = await store.readNumber(world.sessionId, journal.c + 1);
        if (!next) continue;
        const tip = await readTip(store, world.sessionId);
        replica.loop.observe(world.sessionId, tip);
        this.onHead(tip.head.c > next.c ? tip.head : tipOf(next).head);
      } catch {
        world.count('journal probe failed');
      }
    }
  }
}

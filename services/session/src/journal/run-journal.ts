import type { runnersPb } from '@margay/contracts';
import { subjects } from '@margay/contracts';
import { isMargayError, UnavailableError } from '@margay/errors';
import { tipOf, type CommitDocument, type Head, type RunnerCommand } from '@margay/log';
import type { Logger, NatsBus } from '@margay/platform';
import { commitNumberOf, publishDelta } from '../commits/live';
import type { SessionLog } from '../commits/session-log';
import type { HeldRun } from '../dispatch/attached-runner';
import { inboxItemsOf, RecordPage, recordsOf } from './journal-records';
import { parseCommand } from './runner-command';

/** What a journal says to its runner. */
export interface JournalStreamPort {
  /** Resolves when the runner takes more; whoever does not send much need not wait. */
  send(message: NonNullable<runnersPb.JournalResponse['message']>): Promise<void>;
  /** Ends the stream: the runner opens another one and sends again what has no answer. */
  breakOff(error: unknown): void;
  end(): void;
}

export interface RunJournalPorts {
  log: SessionLog;
  bus: Pick<NatsBus, 'subscribe' | 'publish' | 'flush'>;
  logger: Logger;
}

const CLAIM_POLL_MS = 20;
/** A claim was acknowledged by a majority before its run was assigned: reads show it soon. */
const CLAIM_WAIT_MS = 10_000;

/**
 * One runner's view of one session's log while it drives a run there: opened from a log read whose last head shows
 * exactly this run and epoch, followed like a gateway follows it, written under its epoch only.
 */
export class RunJournal {
  private knownC = 0;
  private tenantId = '';
  private isOpen = false;
  /** Nothing more is said to the runner. */
  isOver = false;
  /** No further command is taken here: one could not be prepared, or the stream is about to end. */
  private isBroken = false;
  /** Why a command was refused as faulty: no step behind it is taken, only the end of the run. */
  private refusal: unknown;
  /** Commits that arrived while the log was being read or another one was being handled. */
  private followed: Promise<void> = Promise.resolve();
  private prepared: Promise<void> = Promise.resolve();
  private readonly submitted = new Set<Promise<void>>();
  /** Ids of commands by which the owner itself ends or gives back its run. */
  private readonly endings = new Set<string>();
  private readonly stops: (() => void)[] = [];

  constructor(
    private readonly ports: RunJournalPorts,
    readonly run: HeldRun,
    private readonly stream: JournalStreamPort,
  ) {}

  /** Subscribes, reads the log, and answers `opened` or `fenced`. */
  async open(haveC: number, tenantId: string): Promise<void> {
    const { log, bus } = this.ports;
    const { sessionId } = this.run;
    this.tenantId = tenantId;
    this.stops.push(log.onSessionCommitted(sessionId, (document) => this.follow(document.c, document)));
    const listen = (data: Uint8Array): void => this.follow(commitNumberOf(data));
    this.stops.push(bus.subscribe(subjects.sessionEvents(tenantId, sessionId), listen));
    const subscribed = bus.flush();
    await this.readLog(haveC);
    // What was committed while the log was being read, or before the subscription stood.
    void subscribed.then(() => this.follow(this.nextC));
  }

  close(): void {
    this.isOver = true;
    for (const stop of this.stops.splice(0)) stop();
  }

  /** Ends the stream once every command that came is answered: the runner goes on at another replica. */
  async handOver(): Promise<void> {
    this.isBroken = true;
    await this.prepared;
    await Promise.all(this.submitted);
    this.stream.end();
  }

  /** Number of the commit that follows what this journal has seen. */
  get nextC(): number {
    return this.knownC + 1;
  }

  /** Somebody knows that the log has reached this commit. */
  follow(c: number, document?: CommitDocument): void {
    if (this.isOver) return;
    this.followed = this.followed
      .then(() => this.followTo(c, document))
      // The next probe finds what was missed.
      .catch((error: unknown) => this.ports.logger.warn({ err: error, ...this.run }, 'a run could not be followed'));
  }

  /** Commands are inserted in the order in which they came; several may be under way. */
  commit(command: runnersPb.JournalCommit): void {
    if (this.isOver) return;
    this.prepared = this.prepared
      .then(() => this.prepare(command))
      .catch((error: unknown) => {
        // What comes behind must not be stored without it: all of it is sent again over another stream.
        this.isBroken = true;
        this.stream.breakOff(error);
      });
  }

  delta(delta: runnersPb.JournalDelta): void {
    if (this.isOver || !this.isOpen) return;
    publishDelta(this.ports.bus, this.tenantId, this.run, delta);
  }

  private async followTo(c: number, document: CommitDocument | undefined): Promise<void> {
    if (this.isOver || !this.isOpen || c <= this.knownC) return;
    if (document?.c === this.nextC) return this.onCommit(document);
    for await (const next of this.ports.log.store.range(this.run.sessionId, this.nextC)) {
      await this.onCommit(next);
      if (this.isOver) return;
    }
  }

  private async prepare({ commitId, commandJson }: runnersPb.JournalCommit): Promise<void> {
    if (this.isBroken) return;
    const command = this.parsed(commandJson, commitId);
    if (!command) return;
    if (command.kind === 'step' && this.refusal !== undefined) return this.rejected(commitId, this.refusal);
    if (command.kind !== 'step') this.endings.add(commitId);
    const fitted = await this.ports.log.fit(this.run.sessionId, this.tenantId, command);
    const submitted = this.submit(fitted).finally(() => this.submitted.delete(submitted));
    this.submitted.add(submitted);
  }

  /** A faulty command is answered; sent again it would be as faulty. */
  private parsed(commandJson: string, commitId: string): RunnerCommand | undefined {
    try {
      return parseCommand(commandJson, commitId, this.run);
    } catch (error) {
      this.refusal = error;
      this.rejected(commitId, error);
      return undefined;
    }
  }

  private async submit(command: RunnerCommand): Promise<void> {
    const { commitId } = command;
    try {
      const outcome = await this.ports.log.submit(this.run.sessionId, command);
      if (outcome.ok) {
        void this.stream.send({ $case: 'committed', value: { commitId, c: outcome.c, seq: outcome.head.seq } });
        return;
      }
      const { reason, message } = outcome.rejection;
      if (reason === 'fenced') return this.stop(outcome.head, message);
      this.endings.delete(commitId);
      void this.stream.send({ $case: 'rejected', value: { commitId, reason, message } });
      // What it was refused for is shown at once, not with the next probe.
      if (reason === 'inbox' || reason === 'changed') this.follow(outcome.head.c);
    } catch (error) {
      this.rejected(commitId, error);
    }
  }

  private rejected(commitId: string, error: unknown): void {
    const reason = isMargayError(error) ? error.reason : 'internal';
    const message = isMargayError(error) ? error.message : 'the commit failed';
    if (reason === 'internal') this.ports.logger.error({ err: error, ...this.run }, 'a commit failed');
    void this.stream.send({ $case: 'rejected', value: { commitId, reason, message } });
  }

  private async readLog(haveC: number): Promise<void> {
    const { store } = this.ports.log;
    const { sessionId } = this.run;
    const untilMs = performance.now() + CLAIM_WAIT_MS;
    const page = new RecordPage();
    this.knownC = haveC;
    while (!this.isOver) {
      const last = await this.readPages(page);
      const head = last?.head ?? (await store.readNumber(sessionId, this.knownC))?.head;
      if (head && this.isMine(head)) {
        if (last) this.ports.log.observe(sessionId, tipOf(last));
        this.isOpen = true;
        await this.stream.send({ $case: 'opened', value: { records: page.take(), last: true, headJson: JSON.stringify(head) } }); // prettier-ignore
        return;
      }
      // An epoch belongs to one owner of one run: with another state under the same one it is over, too.
      if (head && head.epoch >= this.run.epoch) return this.stop(head, 'the run has moved on');
      if (performance.now() > untilMs)
        throw new UnavailableError('claim_not_seen', `the store does not show that run ${this.run.runId} was claimed`);
      await new Promise((resolve) => setTimeout(resolve, CLAIM_POLL_MS));
    }
  }

  /** Sends the records of all commits behind the known one, as fast as the runner takes them. */
  private async readPages(page: RecordPage): Promise<CommitDocument | undefined> {
    const { store, blobs } = this.ports.log;
    let last: CommitDocument | undefined;
    for await (const document of store.range(this.run.sessionId, this.nextC)) {
      for (const json of await recordsOf(document, blobs)) {
        page.add(document.c, json);
        if (!page.isFull) continue;
        await this.stream.send({ $case: 'opened', value: { records: page.take(), last: false, headJson: '' } });
        if (this.isOver) return undefined;
      }
      this.knownC = document.c;
      last = document;
    }
    return last;
  }

  private async onCommit(document: CommitDocument): Promise<void> {
    if (this.isOver || document.c !== this.nextC) return;
    if (!this.isMine(document.head)) {
      // Its own last command is answered to the owner by itself.
      if (document.commitIds.some((id) => this.endings.has(id))) return this.close();
      return this.stop(document.head, 'the run has moved on');
    }
    const items = await inboxItemsOf(document, this.ports.log.blobs);
    this.knownC = document.c;
    if (items.length > 0) void this.stream.send({ $case: 'inbox', value: { items } });
  }

  private isMine({ run, epoch }: Head): boolean {
    return run?.id === this.run.runId && epoch === this.run.epoch && run.state === 'running';
  }

  /** Tells the runner to stop: cancelled by a person, or fenced. */
  private stop(head: Head, message: string): void {
    if (this.isOver) return;
    const isCanceled = head.lastRun?.id === this.run.runId && head.lastRun.doneReason === 'canceled';
    if (isCanceled) void this.stream.send({ $case: 'cancel', value: { reason: 'canceled' } });
    else void this.stream.send({ $case: 'fenced', value: { message } });
    this.close();
  }
}

import type { runnersPb } from '@margay/contracts';
import { subjects } from '@margay/contracts';
import { InvalidArgumentError, isMargayError } from '@margay/errors';
import {
  inlineBlobs,
  offload,
  tipOf,
  unpackRecord,
  type CommitDocument,
  type Head,
  type RunnerCommand,
} from '@margay/log';
import type { Logger, NatsBus } from '@margay/platform';
import { z } from 'zod';
import type { SessionLog } from '../commits/session-log';
import type { HeldRun } from '../dispatch/attached-runner';
import { publishDelta } from '../commits/live';
import { RunnerMessage } from './runner-command.schema';

type Respond = (message: NonNullable<runnersPb.JournalResponse['message']>) => void;

/** Records per `opened` message; each holds at most a commit's worth of text. */
const PAGE_RECORDS = 100;
const PAGE_BYTES = 1024 * 1024;

/**
 * One runner's view of one session's log while it drives a run there: opened from a log read whose last head shows
 * exactly this run and epoch, followed like a gateway follows it, written under its epoch only.
 */
export class RunJournal {
  private knownC = 0;
  private tenantId = '';
  private isOpen = false;
  private isOver = false;
  /** A command could not be prepared: none behind it is taken. */
  private isBroken = false;
  /** Why a command was refused as faulty: no step behind it is taken, only the end of the run. */
  private refusal: unknown;
  /** Commits that arrived while the log was being read or another one was being handled. */
  private followed: Promise<void> = Promise.resolve();
  private prepared: Promise<void> = Promise.resolve();
  private readonly sentIds = new Set<string>();
  private readonly stops: (() => void)[] = [];

  constructor(
    private readonly ports: { log: SessionLog; bus: NatsBus; logger: Logger },
    readonly run: HeldRun,
    private readonly respond: Respond,
    /** Ends the stream: the runner opens another one and sends again what has no answer. */
    private readonly breakOff: (error: unknown) => void,
  ) {}

  /** Subscribes, reads the log, and answers `opened` or `fenced`. */
  async open(haveC: number, tenantId: string): Promise<void> {
    this.tenantId = tenantId;
    this.stops.push(
      this.ports.log.onCommitted((document) => {
        if (document.sessionId === this.run.sessionId) this.follow(document.c, document);
      }),
    );
    const subject = subjects.sessionEvents(tenantId, this.run.sessionId);
    this.stops.push(this.ports.bus.subscribe(subject, (data) => this.follow(commitNumberOf(data))));
    await this.readLog(haveC);
  }

  close(): void {
    this.isOver = true;
    for (const stop of this.stops) stop();
  }

  /** Number of the commit that follows what this journal has seen. */
  get nextC(): number {
    return this.knownC + 1;
  }

  /** Somebody knows that the log has reached this commit. */
  follow(c: number, document?: CommitDocument): void {
    if (this.isOver) return;
    this.followed = this.followed
      .then(async () => {
        if (this.isOver || !this.isOpen || c <= this.knownC) return;
        if (document && document.c === this.knownC + 1) this.onCommit(document);
        else
          for await (const next of this.ports.log.store.range(this.run.sessionId, this.knownC + 1)) this.onCommit(next);
      })
      // The next probe finds what was missed.
      .catch((error: unknown) => this.ports.logger.warn({ err: error, ...this.run }, 'a run could not be followed'));
  }

  /** Commands are inserted in the order in which they came; several may be under way. */
  commit(command: runnersPb.JournalCommit): void {
    if (this.isOver) return;
    this.sentIds.add(command.commitId);
    this.prepared = this.prepared
      .then(() => this.prepare(command))
      .catch((error: unknown) => {
        // What comes behind must not be stored without it: all of it is sent again over another stream.
        this.isBroken = true;
        this.breakOff(error);
      });
  }

  delta(delta: runnersPb.JournalDelta): void {
    if (this.isOver || !this.isOpen) return;
    publishDelta(this.ports.bus, this.tenantId, this.run, delta);
  }

  private async prepare({ commitId, commandJson }: runnersPb.JournalCommit): Promise<void> {
    if (this.isBroken) return;
    const command = this.parsed(commandJson, commitId);
    if (!command) return;
    if (command.kind === 'step' && this.refusal !== undefined) return this.rejected(commitId, this.refusal);
    const fitted = command.kind === 'release' ? command : await offload(this.tenantId, command, this.ports.log.blobs);
    void this.submit(fitted);
  }

  /** A faulty command is answered; sent again it would be as faulty. */
  private parsed(commandJson: string, commitId: string): RunnerCommand | undefined {
    try {
      return parse(commandJson, commitId, this.run);
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
        this.respond({ $case: 'committed', value: { commitId, c: outcome.c, seq: outcome.head.seq } });
        return;
      }
      const { reason, message } = outcome.rejection;
      if (reason === 'fenced') this.stop(outcome.head, message);
      else this.respond({ $case: 'rejected', value: { commitId, reason, message } });
      if (reason === 'inbox') this.follow(outcome.head.c);
    } catch (error) {
      this.rejected(commitId, error);
    }
  }

  private rejected(commitId: string, error: unknown): void {
    const reason = isMargayError(error) ? error.reason : 'internal';
    const message = isMargayError(error) ? error.message : 'the commit failed';
    this.respond({ $case: 'rejected', value: { commitId, reason, message } });
  }

  private async readLog(haveC: number): Promise<void> {
    const { sessionId } = this.run;
    let page: runnersPb.JournalRecord[] = [];
    let pageBytes = 0;
    const flush = (last: boolean, headJson: string): void => {
      this.respond({ $case: 'opened', value: { records: page, last, headJson } });
      page = [];
      pageBytes = 0;
    };
    this.knownC = haveC;
    for (;;) {
      let lastDocument: CommitDocument | undefined;
      for await (const document of this.ports.log.store.range(sessionId, this.knownC + 1)) {
        for (const json of await this.recordsOf(document)) {
          page.push({ c: document.c, json });
          pageBytes += json.length;
          if (page.length >= PAGE_RECORDS || pageBytes >= PAGE_BYTES) flush(false, '');
        }
        this.knownC = document.c;
        lastDocument = document;
      }
      const head = lastDocument?.head ?? (await this.ports.log.store.readNumber(sessionId, this.knownC))?.head;
      if (head && this.isMine(head)) {
        if (lastDocument) this.ports.log.observe(sessionId, tipOf(lastDocument));
        this.isOpen = true;
        flush(true, JSON.stringify(head));
        // What was committed while the log was being read.
        this.follow(this.knownC + 1);
        return;
      }
      if (head && (head.epoch > this.run.epoch || head.run?.id !== this.run.runId))
        return this.stop(head, 'the run has moved on');
      if (this.isOver) return;
      // The store has not shown the claim yet.
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  private async recordsOf(document: CommitDocument): Promise<string[]> {
    const frames = document.events.map(({ frame }) => frame);
    return Promise.all(
      document.records.map(async (text) => {
        if (!text.includes('$event"') && !text.includes('$blob"')) return text;
        return JSON.stringify(await inlineBlobs(this.tenantId, unpackRecord(text, frames), this.ports.log.blobs));
      }),
    );
  }

  private onCommit(document: CommitDocument): void {
    if (this.isOver || document.c !== this.knownC + 1) return;
    this.knownC = document.c;
    if (!this.isMine(document.head)) {
      // The owner's own last commit, its end or its release, is answered to it by itself.
      if (document.commitIds.some((id) => this.sentIds.has(id))) return this.close();
      return this.stop(document.head, 'the run has moved on');
    }
    for (const id of document.commitIds) this.sentIds.delete(id);
    const items = inboxItems(document);
    if (items.length > 0) this.respond({ $case: 'inbox', value: { items } });
  }

  private isMine({ run, epoch }: Head): boolean {
    return run?.id === this.run.runId && epoch === this.run.epoch && run.state === 'running';
  }

  /** Tells the runner to stop: cancelled by a person, or fenced. */
  private stop(head: Head, message: string): void {
    if (this.isOver) return;
    const isCanceled = head.lastRun?.id === this.run.runId && head.lastRun.doneReason === 'canceled';
    if (isCanceled) this.respond({ $case: 'cancel', value: { reason: 'canceled' } });
    else this.respond({ $case: 'fenced', value: { message } });
    this.close();
  }
}

function parse(json: string, commitId: string, { runId, epoch }: HeldRun): RunnerCommand {
  const parsed = RunnerMessage.safeParse(jsonOf(json));
  if (!parsed.success)
    throw new InvalidArgumentError(
      'invalid_command',
      `the command of ${commitId} is wrong: ${z.prettifyError(parsed.error)}`,
    );
  return { ...parsed.data, commitId, runId, epoch } as RunnerCommand;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // no command of any kind
  }
}

function inboxItems(document: CommitDocument): runnersPb.InboxItem[] {
  const items: runnersPb.InboxItem[] = [];
  for (const text of document.records) {
    if (!text.startsWith('{"kind":"inbox"')) continue;
    const record = unpackRecord(
      text,
      document.events.map(({ frame }) => frame),
    );
    items.push({ n: Number(record['n']), kind: String(record['item']), text: String(record['text']) });
  }
  return items;
}

function commitNumberOf(data: Uint8Array): number {
  const { c } = JSON.parse(Buffer.from(data).toString('utf8')) as { c: number };
  return c;
}

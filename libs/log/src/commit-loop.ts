import { InvalidArgumentError, UnavailableError } from '@margay/errors';
import { bodyHash, fold } from './build';
import type { LogClock } from './clock';
import type { Command } from './command';
import { tipOf, type CommitDocument, type Tip } from './document';
import { ALL_LOOP_RULES, type LoopRules } from './loop-rules';
import type { CommitOutcome } from './outcome';
import { deadlineError, takeBatch, without, type Pending, type Refused } from './pending';
import { readConfirmedTip, readTip } from './read-tip';
import { COMMIT_MAX_BYTES, commandBytes } from './size';
import { isUnsent, type CommitStore } from './store';

const QUEUE_MAX = 256;
const INVISIBLE_MS = 100;
const RETRY_FIRST_MS = 10;
const RETRY_MAX_MS = 1_000;
const LANES_MAX = 20_000;

/** What a replica knows of one session: the end it saw last, and the commands waiting for the insert in flight. */
interface Lane {
  sessionId: string;
  cache: Tip | null;
  queue: Pending[];
  isBusy: boolean;
}

export interface CommitLoopOptions {
  store: CommitStore;
  clock: LogClock;
  /** Called once for each document this loop knows to be stored by it, before its senders are answered. */
  onCommitted?: (document: CommitDocument) => void;
  rules?: Partial<LoopRules>;
}

export interface SubmitOptions {
  timeoutMs?: number;
  /** By which a repeat is told, where it is not that of the command as it is stored. */
  bodyHash?: string;
}

/**
 * Appends commands to sessions: per session one insert in flight, commands that arrive meanwhile join the next document.
 * Any number of loops may work on one store. See docs/protocol.md §1.
 */
export class CommitLoop {
  private readonly lanes = new Map<string, Lane>();
  private readonly store: CommitStore;
  private readonly clock: LogClock;
  private readonly rules: LoopRules;
  private isClosed = false;

  constructor(private readonly options: CommitLoopOptions) {
    this.store = options.store;
    this.clock = options.clock;
    this.rules = { ...ALL_LOOP_RULES, ...options.rules };
  }

  /**
   * Appends one command, or says why it was refused. Idempotent by `command.commitId`. A runner's commands are stored in
   * the order in which they come, or from some point on not at all: no deadline and no full queue takes one out of the
   * middle.
   * @throws UnavailableError `session_busy` when 256 commands wait already; `deadline` when `timeoutMs` passed before
   *   anything was sent; `closing` on shutdown. InvalidArgumentError `too_large` above 512 KB.
   */
  submit(sessionId: string, command: Command, options: SubmitOptions = {}): Promise<CommitOutcome> {
    if (this.isClosed)
      return Promise.reject(new UnavailableError('closing', 'this replica is shutting down; try again'));
    const lane = this.lane(sessionId);
    const bytes = commandBytes(command);
    const isOrdered = isRunnerCommand(command);
    if (bytes > COMMIT_MAX_BYTES)
      return Promise.reject(
        new InvalidArgumentError(
          'too_large',
          `a commit of ${bytes} bytes is above ${COMMIT_MAX_BYTES}; put large texts into blobs`,
        ),
      );
    if (lane.queue.length >= QUEUE_MAX && !isOrdered)
      return Promise.reject(
        new UnavailableError('session_busy', `session ${sessionId} has ${QUEUE_MAX} commands waiting; try again`),
      );
    return new Promise((settle, fail) => {
      const { timeoutMs = Infinity } = isOrdered ? {} : options;
      const deadlineMs = this.clock.monotonicMs() + timeoutMs;
      const hash = options.bodyHash ?? bodyHash(command);
      lane.queue.push({ command, bodyHash: hash, bytes, deadlineMs, isSent: false, settle, fail });
      if (!lane.isBusy) void this.drain(lane);
    });
  }

  /** The end this replica saw last, if any: a hint, good for showing, never for deciding. */
  peek(sessionId: string): Tip | undefined {
    return this.lanes.get(sessionId)?.cache ?? undefined;
  }

  /** The log's true end, confirmed by a linearizable read. */
  async confirmedTip(sessionId: string): Promise<Tip> {
    const tip = await readConfirmedTip(this.store, sessionId);
    this.observe(sessionId, tip);
    return tip;
  }

  /** Takes note of an end that somebody else's commit made known. */
  observe(sessionId: string, tip: Tip): void {
    if (tip.head.c === 0) return;
    const lane = this.lane(sessionId);
    if (!lane.isBusy && (lane.cache?.head.c ?? 0) < tip.head.c) lane.cache = tip;
  }

  /** Refuses new commands and gives up retrying; what was sent may still be stored. */
  close(): void {
    this.isClosed = true;
  }

  private lane(sessionId: string): Lane {
    const known = this.lanes.get(sessionId);
    if (known) {
      // Move to the young end, so that the oldest idle lane is found first.
      this.lanes.delete(sessionId);
      this.lanes.set(sessionId, known);
      return known;
    }
    if (this.lanes.size >= LANES_MAX) this.forgetOldestIdleLane();
    const lane: Lane = { sessionId, cache: null, queue: [], isBusy: false };
    this.lanes.set(sessionId, lane);
    return lane;
  }

  private forgetOldestIdleLane(): void {
    for (const [sessionId, lane] of this.lanes) {
      if (lane.isBusy) continue;
      this.lanes.delete(sessionId);
      return;
    }
  }

  private async drain(lane: Lane): Promise<void> {
    lane.isBusy = true;
    while (lane.queue.length > 0) {
      const batch = takeBatch(lane.queue, this.rules);
      try {
        await this.commitBatch(lane, batch);
      } catch (error) {
        lane.cache = null;
        // What waits behind a command that may not be stored must not be stored without it.
        for (const pending of [...batch, ...lane.queue.splice(0)]) pending.fail(error as Error);
      }
    }
    lane.isBusy = false;
  }

  /** Settles every command of the batch: stored, found stored, refused, or failed before it was sent. */
  private async commitBatch(lane: Lane, batch: Pending[]): Promise<void> {
    let pending = batch;
    /** A head read from the store after these commands came in; only on such a one they may be refused. */
    let read: Tip | undefined;
    while (pending.length > 0) {
      const tip: Tip = read ?? lane.cache ?? (read = await this.readTip(lane));
      const isFresh = read !== undefined;
      read = undefined;
      const { document, accepted, rejected } = fold(tip, pending, this.clock.nowMicros(), this.rules);
      if (document) {
        const late = accepted.filter((item) => this.isLate(item));
        for (const item of late) item.fail(deadlineError(lane.sessionId));
        const settled = late.length > 0 ? late : await this.insertUntilKnown(lane, document, accepted);
        pending = without(pending, settled);
      } else if (!isFresh && this.rules.freshRejections) {
        read = await this.readTip(lane);
      } else {
        read = await this.readNext(lane, tip);
        if (!read) pending = await this.refuse(lane, tip, rejected, pending);
      }
    }
  }

  private isLate({ isSent, deadlineMs }: Pending): boolean {
    return !(isSent && this.rules.deadlineBeforeSending) && this.clock.monotonicMs() > deadlineMs;
  }

  private async readTip(lane: Lane): Promise<Tip> {
    const tip = await this.retrying(() => readTip(this.store, lane.sessionId));
    lane.cache = tip;
    return tip;
  }

  /** The commit behind this tip, by a linearizable read; undefined: the tip is the log's true end. */
  private async readNext(lane: Lane, tip: Tip): Promise<Tip | undefined> {
    if (!this.rules.linearizableEnd || !this.rules.freshRejections) return undefined;
    const next = await this.retrying(() =>
      this.store.readNumber(lane.sessionId, tip.head.c + 1, { linearizable: true }),
    );
    if (!next) return undefined;
    lane.cache = tipOf(next);
    return lane.cache;
  }

  /**
   * Answers refused commands; one that is stored already is a repeat and gets its stored answer instead. The search is
   * linearizable: one that is behind would refuse what the sender's first attempt had stored.
   */
  private async refuse(lane: Lane, tip: Tip, rejected: Refused[], pending: Pending[]): Promise<Pending[]> {
    for (const { item, rejection } of rejected) {
      const stored = this.rules.findStored ? await this.findStored(lane, item, true) : undefined;
      if (stored) this.answerFrom(stored, item, true);
      else item.settle({ ok: false, rejection, head: tip.head });
    }
    return without(
      pending,
      rejected.map(({ item }) => item),
    );
  }

  private findStored(lane: Lane, item: Pending, linearizable: boolean): Promise<CommitDocument | undefined> {
    const { commitId } = item.command;
    return this.retrying(() => this.store.findByCommitId(lane.sessionId, commitId, { linearizable }));
  }

  /**
   * Inserts the document, whatever it takes to know the outcome. Returns the commands that are settled; the others are
   * to be decided again, on the end left in the lane's cache.
   */
  private async insertUntilKnown(lane: Lane, document: CommitDocument, accepted: Pending[]): Promise<Pending[]> {
    for (const item of accepted) item.isSent = true;
    let delayMs = RETRY_FIRST_MS;
    let isInDoubt = false;
    for (;;) {
      let outcome: 'inserted' | 'exists';
      try {
        outcome = await this.store.insert(document);
      } catch (error) {
        if (!isInDoubt && isUnsent(error)) throw error;
        isInDoubt = true;
        // Unknown: never a higher number, never other bytes, before knowing.
        lane.cache = null;
        await this.backOff(delayMs, error);
        delayMs = Math.min(delayMs * 2, RETRY_MAX_MS);
        continue;
      }
      if (outcome === 'inserted') {
        lane.cache = tipOf(document);
        this.options.onCommitted?.(document);
        for (const item of accepted) this.answerFrom(document, item, false);
        return accepted;
      }
      const settled = await this.adoptStored(lane, accepted);
      if (settled.length > 0) return settled;
      if (await this.adoptOccupant(lane, document)) return [];
    }
  }

  /** Which of these commands a stored document holds: they are answered from that document. */
  private async adoptStored(lane: Lane, accepted: Pending[]): Promise<Pending[]> {
    if (!this.rules.findStored) return [];
    const settled: Pending[] = [];
    const documents = new Map<string, CommitDocument>();
    for (const item of accepted) {
      const inKnown = [...documents.values()].find(({ commitIds }) => commitIds.includes(item.command.commitId));
      const stored = inKnown ?? (await this.findStored(lane, item, false));
      if (!stored) continue;
      documents.set(stored._id, stored);
      this.answerFrom(stored, item, true);
      settled.push(item);
    }
    for (const document of documents.values()) this.options.onCommitted?.(document);
    if (documents.size > 0) lane.cache = null;
    return settled;
  }

  /** Waits for the document that holds the number to be seen; false: it can't be seen, insert again. */
  private async adoptOccupant(lane: Lane, document: CommitDocument): Promise<boolean> {
    const startedMs = this.clock.monotonicMs();
    for (;;) {
      const occupant = await this.retrying(() => this.store.readNumber(lane.sessionId, document.c));
      if (occupant) {
        // Many may have followed: a replica that was away does not walk through them one by one.
        lane.cache = await this.retrying(() => readTip(this.store, lane.sessionId, occupant));
        return true;
      }
      const waitedMs = this.clock.monotonicMs() - startedMs;
      if (waitedMs >= INVISIBLE_MS && this.rules.reinsertInvisible) return false;
      await this.clock.sleep(5);
    }
  }

  private answerFrom(document: CommitDocument, item: Pending, replayed: boolean): void {
    const stored = document.commands.find(({ commitId }) => commitId === item.command.commitId);
    if (stored && stored.bodyHash !== item.bodyHash)
      item.settle({
        ok: false,
        rejection: { reason: 'idempotency_key_reused', message: 'this key was used with another body' },
        head: document.head,
      });
    else item.settle({ ok: true, c: document.c, answer: stored?.answer ?? {}, head: document.head, replayed });
  }

  /** Reads are repeated until the store answers. */
  private async retrying<T>(read: () => Promise<T>): Promise<T> {
    let delayMs = RETRY_FIRST_MS;
    for (;;) {
      try {
        return await read();
      } catch (error) {
        await this.backOff(delayMs, error);
        delayMs = Math.min(delayMs * 2, RETRY_MAX_MS);
      }
    }
  }

  private async backOff(delayMs: number, cause: unknown): Promise<void> {
    if (this.isClosed)
      throw new UnavailableError('closing', 'this replica is shutting down; repeat the command to learn its outcome', {
        cause,
      });
    await this.clock.sleep(delayMs * (0.5 + this.clock.random()));
  }
}

function isRunnerCommand({ kind }: Command): boolean {
  return kind === 'step' || kind === 'finish' || kind === 'release';
}

import { errorOf, type MargayError } from '@margay/errors';
import { ATTRIBUTE, isTraced, markFailed, withSpan, type Logger } from '@margay/platform';
import {
  bodyHash,
  CommitLoop,
  MemoryBlobStore,
  offloadCommand,
  readTip,
  type BlobStore,
  type Command,
  type CommitDocument,
  type CommitOutcome,
  type CommitStore,
  type Head,
  type Rejection,
  type RejectReason,
  type Tip,
} from '@margay/log';
import type { ErrorCode } from '@margay/errors';
import { mayHoldTexts, type CommandMasking } from '../secrets/commit-masking';
import { commitFault } from './commit-faults';
import { SystemClock } from './system-clock';

type CommitListener = (document: CommitDocument) => void;
type FittedCommand = Parameters<typeof offloadCommand>[1];

const CODE_BY_REASON: Record<RejectReason, ErrorCode> = {
  session_not_found: 'NOT_FOUND',
  session_exists: 'ALREADY_EXISTS',
  session_running: 'ABORTED',
  session_terminated: 'FAILED_PRECONDITION',
  no_active_run: 'FAILED_PRECONDITION',
  fenced: 'FAILED_PRECONDITION',
  lost: 'ABORTED',
  inbox: 'ABORTED',
  changed: 'ABORTED',
  question_decided: 'ABORTED',
  nothing_to_recover: 'INVALID_ARGUMENT',
  cuts_exhausted: 'ABORTED',
  head_too_large: 'INVALID_ARGUMENT',
  invalid: 'INVALID_ARGUMENT',
  idempotency_key_reused: 'ALREADY_EXISTS',
};

/** How long a command may wait in its session's queue before anything of it is sent. */
const QUEUE_TIMEOUT_MS = 10_000;

/** Told of what happens to commits, for metrics. */
export interface CommitObserver {
  /** One insert was answered. */
  inserted(seconds: number): void;
  /** Somebody else took the number. */
  conflicted(): void;
  /** The store did not say what became of an insert. */
  unknownOutcome(): void;
  /** A command of an owner whose run has moved on. */
  fenced(): void;
}

/** The session logs of this replica: one commit loop, and listeners to what it stores. */
export class SessionLog {
  /** The same store, its inserts observed: for documents that no command makes. */
  readonly writes: CommitStore;
  private readonly loop: CommitLoop;
  /** Commands without secrets. A repeat is told by what was sent: secrets may have been written since the first attempt. */
  private readonly masked = new WeakMap<Command, { bodyHash?: string }>();
  private readonly listeners = new Set<CommitListener>();
  private readonly listenersOf = new Map<string, Set<CommitListener>>();

  constructor(
    readonly store: CommitStore,
    readonly blobs: BlobStore,
    private readonly observer: CommitObserver,
    private readonly logger: Logger,
    /** Why nothing may be stored at present. */
    private readonly refusal: () => MargayError | undefined = () => undefined,
    /** Absent: what comes is stored as it is. */
    private readonly masking: () => CommandMasking | undefined = () => undefined,
  ) {
    this.writes = observed(store, observer);
    this.loop = new CommitLoop({
      store: this.writes,
      clock: new SystemClock(),
      onCommitted: (document) => this.announce(document),
    });
  }

  /** Called for every commit that this replica stores, in order per session. @returns stops listening */
  onCommitted(listener: CommitListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  /** The same for one session only. */
  onSessionCommitted(sessionId: string, listener: CommitListener): () => void {
    const own = this.listenersOf.get(sessionId) ?? new Set();
    this.listenersOf.set(sessionId, own.add(listener));
    return () => {
      own.delete(listener);
      if (own.size === 0 && this.listenersOf.get(sessionId) === own) this.listenersOf.delete(sessionId);
    };
  }

  async submit(sessionId: string, command: Command): Promise<CommitOutcome> {
    this.requireWritable();
    // Commands that were masked, or hold no texts, must keep their order: nothing is awaited before they are in the loop.
    const isReady = this.masked.has(command) || !mayHoldTexts(command);
    const masked = isReady ? command : await this.mask(sessionId, command);
    const outcome = await this.traced(sessionId, masked);
    if (!outcome.ok && outcome.rejection.reason === 'fenced') this.observer.fenced();
    return outcome;
  }

  /** The command without secrets, as it may be stored anywhere. */
  async mask<C extends Command>(sessionId: string, command: C): Promise<C> {
    const masking = this.masking();
    if (!masking) return command;
    const head = this.cachedHead(sessionId);
    const tenantId =
      command.kind === 'create' ? command.tenantId : (head ?? (await this.recentHead(sessionId))).tenantId;
    const masked = await masking.mask(command, { tenantId, sessionId, head: this.cachedHead(sessionId) });
    this.masked.set(masked, masked === command ? {} : { bodyHash: bodyHash(command) });
    return masked;
  }

  /** The command as it fits into a commit: without secrets, and with everything large in the blob store. */
  async fit<C extends FittedCommand>(sessionId: string, tenantId: string, command: C): Promise<C> {
    const masked = await this.mask(sessionId, command);
    const fitted = await offloadCommand(tenantId, masked, this.blobs);
    const isSent = masked === command;
    // What holds secrets enters no store.
    const sent = isSent ? fitted : await offloadCommand(tenantId, command, new MemoryBlobStore());
    this.masked.set(fitted, isSent ? {} : { bodyHash: bodyHash(sent) });
    return fitted;
  }

  /** @throws why nothing may be stored at present, if so */
  requireWritable(): void {
    const refused = this.refusal();
    if (refused) throw refused;
  }

  /** Like `submit`, for commands whose refusal is an error of the caller. */
  async commit(sessionId: string, command: Command): Promise<CommitOutcome & { ok: true }> {
    const outcome = await this.submit(sessionId, command);
    if (!outcome.ok) throw rejectionError(outcome.rejection);
    return outcome;
  }

  /** The true end of a log, confirmed by a linearizable read; c = 0 where the session does not exist. */
  confirmedTip(sessionId: string): Promise<Tip> {
    return this.loop.confirmedTip(sessionId);
  }

  /** The end that plain reads show: for replays, whose readers follow the live events afterwards. */
  readTip(sessionId: string): Promise<Tip> {
    return readTip(this.store, sessionId);
  }

  /** A head good for tenant checks and for showing: from the cache where there is one. */
  async recentHead(sessionId: string): Promise<Head> {
    return (this.loop.peek(sessionId) ?? (await this.refreshedTip(sessionId))).head;
  }

  /** A head that has reached this epoch, if reads show one: a cached one with a lower epoch is stale. */
  async headOfEpoch(sessionId: string, epoch: number): Promise<Head> {
    const cached = this.loop.peek(sessionId);
    return cached && cached.head.epoch >= epoch ? cached.head : (await this.refreshedTip(sessionId)).head;
  }

  /** The head that this replica remembers, if any. */
  cachedHead(sessionId: string): Head | undefined {
    return this.loop.peek(sessionId)?.head;
  }

  observe(sessionId: string, tip: Tip): void {
    this.loop.observe(sessionId, tip);
  }

  close(): void {
    this.loop.close();
  }

  /** Read, and remembered for the command that most often follows. */
  private async refreshedTip(sessionId: string): Promise<Tip> {
    const tip = await this.readTip(sessionId);
    if (tip.head.c > 0) this.loop.observe(sessionId, tip);
    return tip;
  }

  /** Commits that belong to no request and no run make no trace of their own. */
  private traced(sessionId: string, command: Command): Promise<CommitOutcome> {
    const options = { timeoutMs: QUEUE_TIMEOUT_MS, ...this.masked.get(command) };
    const submit = () => this.loop.submit(sessionId, command, options);
    if (!isTraced()) return submit();
    const attributes = { [ATTRIBUTE.conversation]: sessionId, [ATTRIBUTE.commitKind]: command.kind };
    return withSpan('commit', attributes, async (span) => {
      const outcome = await submit();
      span?.setAttribute(ATTRIBUTE.tenant, outcome.head.tenantId);
      if (outcome.ok) span?.setAttribute(ATTRIBUTE.commitNumber, outcome.c);
      else markFailed(span, outcome.rejection.reason);
      return outcome;
    });
  }

  private announce(document: CommitDocument): void {
    for (const listener of this.listeners) this.tell(listener, document);
    for (const listener of this.listenersOf.get(document.sessionId) ?? []) this.tell(listener, document);
  }

  /** The commit is stored, whatever a listener makes of it: its senders must be answered. */
  private tell(listener: CommitListener, document: CommitDocument): void {
    try {
      listener(document);
    } catch (error) {
      const { sessionId, c } = document;
      this.logger.error({ err: error, sessionId, c }, 'a listener to commits failed');
    }
  }
}

export function rejectionError({ reason, message }: Rejection): MargayError {
  return errorOf(CODE_BY_REASON[reason], reason, message);
}

/** The same store, its inserts observed. */
function observed(store: CommitStore, observer: CommitObserver): CommitStore {
  const measured = Object.create(store) as CommitStore;
  measured.insert = async (document) => {
    const startedMs = performance.now();
    const held = commitFault('session.before-insert', document);
    if (held) await held;
    try {
      const outcome = await store.insert(document);
      const late = outcome === 'inserted' && commitFault('session.after-insert', document);
      if (late) await late;
      if (outcome === 'exists') observer.conflicted();
      return outcome;
    } catch (error) {
      observer.unknownOutcome();
      throw error;
    } finally {
      observer.inserted((performance.now() - startedMs) / 1_000);
    }
  };
  return measured;
}

import { errorOf, type MargayError } from '@margay/errors';
import { ATTRIBUTE, isTraced, markFailed, withSpan } from '@margay/platform';
import {
  CommitLoop,
  readTip,
  type BlobStore,
  type Command,
  type CommitDocument,
  type CommitOutcome,
  type Head,
  type Rejection,
  type RejectReason,
  type Tip,
} from '@margay/log';
import type { ErrorCode } from '@margay/errors';
import type { MongoCommitStore } from './mongo-commit-store';
import { SystemClock } from './system-clock';

type CommitListener = (document: CommitDocument) => void;

const CODE_BY_REASON: Record<RejectReason, ErrorCode> = {
  session_not_found: 'NOT_FOUND',
  session_exists: 'ALREADY_EXISTS',
  session_running: 'ABORTED',
  session_terminated: 'FAILED_PRECONDITION',
  no_active_run: 'FAILED_PRECONDITION',
  fenced: 'FAILED_PRECONDITION',
  lost: 'ABORTED',
  inbox: 'ABORTED',
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
  private readonly loop: CommitLoop;
  private readonly listeners = new Set<CommitListener>();

  constructor(
    readonly store: MongoCommitStore,
    readonly blobs: BlobStore,
    private readonly observer: CommitObserver,
  ) {
    this.loop = new CommitLoop({
      store: observed(store, observer),
      clock: new SystemClock(),
      onCommitted: (document) => this.announce(document),
    });
  }

  /** Called for every commit that this replica stores, in order per session. @returns stops listening */
  onCommitted(listener: CommitListener): () => void {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  async submit(sessionId: string, command: Command): Promise<CommitOutcome> {
    const outcome = await this.traced(sessionId, command);
    if (!outcome.ok && outcome.rejection.reason === 'fenced') this.observer.fenced();
    return outcome;
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
    return (this.loop.peek(sessionId) ?? (await this.readTip(sessionId))).head;
  }

  observe(sessionId: string, tip: Tip): void {
    this.loop.observe(sessionId, tip);
  }

  close(): void {
    this.loop.close();
  }

  /** Commits that belong to no request and no run make no trace of their own. */
  private traced(sessionId: string, command: Command): Promise<CommitOutcome> {
    const submit = () => this.loop.submit(sessionId, command, { timeoutMs: QUEUE_TIMEOUT_MS });
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
    for (const listener of this.listeners) listener(document);
  }
}

export function rejectionError({ reason, message }: Rejection): MargayError {
  return errorOf(CODE_BY_REASON[reason], reason, message);
}

/** The same store, its inserts observed. */
function observed(store: MongoCommitStore, observer: CommitObserver): MongoCommitStore {
  const measured = Object.create(store) as MongoCommitStore;
  measured.insert = async (document) => {
    const startedMs = performance.now();
    try {
      const outcome = await store.insert(document);
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

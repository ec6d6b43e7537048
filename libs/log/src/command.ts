import type { EventInput } from '@margay/contracts';
import type { BlobReference } from './blobs';
import type { Head } from './head';
import type { LogRecord, OpenRecord, RunOptions } from './record';

interface Identified {
  /** Chosen by the sender, the same on every retry; at most one commit of a session ever holds it. */
  commitId: string;
}

export interface CreateCommand extends Identified {
  kind: 'create';
  tenantId: string;
  owner: string;
  tag: string | null;
  context: Record<string, unknown>;
  binding: { project: string | null; cwd: string | null };
}

/** What a new run needs, whoever asks for it. */
export interface RunRequest {
  text: string;
  /** Where the whole text lies; `text` is a preview of it then. */
  textBlob?: BlobReference;
  /** Merged into the session's context. */
  context: Record<string, unknown>;
  binding: { project: string | null; cwd: string | null };
  attachments: unknown[];
  principal: string;
  pool: string;
  options: RunOptions;
  /** Of its sandbox; absent = the usual one. */
  sandboxClass?: string;
  traceparent?: string;
  /** How its sandbox is kept apart, where that is not the usual way: people are told. */
  isolation?: string;
  /**
   * SHA-256 of what the client sent: repeats are told by it, since the rest also depends on the session's present state
   * and on the trace. Absent: the whole command counts.
   */
  requestHash?: string;
  /** Of the head that the request was looked at with; a run is refused as `changed` where it starts on another. */
  seen?: {
    binding: Head['binding'];
    /** Absent: any. */
    epoch?: number;
  };
}

export interface AcceptCommand extends Identified {
  kind: 'accept';
  run: RunRequest;
}

/** Steers the active run; accepts `run` where none is active. */
export interface MessageCommand extends Identified {
  kind: 'message';
  run: RunRequest;
}

export interface InterruptCommand extends Identified {
  kind: 'interrupt';
}

export interface CancelCommand extends Identified {
  kind: 'cancel';
}

/** The session works in another project, or in none, from its next run on. */
export interface BindCommand extends Identified {
  kind: 'bind';
  binding: { project: string | null; cwd: string | null };
  /** What the `context` event says of it. */
  context: Record<string, unknown>;
}

/** Runs that were looked at with an earlier epoch do not start any more. Refused while one is active. */
export interface FenceCommand extends Identified {
  kind: 'fence';
}

export interface TerminateCommand extends Identified {
  kind: 'terminate';
  cancelledTriggers: number;
}

/** How a question ended. */
export type QuestionOutcome = 'answered' | 'declined' | 'interrupted' | 'cancelled' | 'timed_out';

/** A person answers a question of a run. */
export interface AnswerCommand extends Identified {
  kind: 'answer';
  callId: string;
  /** As the public event shows it. */
  answers: unknown[];
  notes: string | null;
  /** How it came, e.g. `rest`. */
  via: string;
  /** What the model reads. */
  text: string;
  /** What a late answer opens, its text included: the run that asked has gone on or ended. Absent: none can be started. */
  late?: RunRequest;
}

/** A question has waited for as long as it was to. */
export interface ExpireCommand extends Identified {
  kind: 'expire';
  callId: string;
}

export interface RetriedTurn {
  seq: number;
  ts: number;
  runId: string;
  /** It was asked for as the last one: not to be cut together with another that came meanwhile. */
  isLast?: boolean;
}

/** Runs the last turn again, or goes on after an end that was none. */
export interface RecoverCommand extends Identified {
  kind: 'recover';
  action: 'retry' | 'continue';
  /** `retry`: the user event to run again; it and all behind it is cut. */
  from?: RetriedTurn;
  run: RunRequest;
}

/** A runner takes the queued run. */
export interface ClaimCommand extends Identified {
  kind: 'claim';
  runId: string;
  /** Epoch of the queued run as the dispatcher saw it. */
  epoch: number;
  owner: string;
}

/** Why a run left its owner. The first four are losses: who killed it again and again is driven apart, then parked. */
export type LeaveCause =
  /** Its `Attach` stream closed and none was opened. */
  | 'crash'
  /** Its beat stands still. */
  | 'lease'
  /** The run failed there outside the engine, in a way that would not pass. */
  | 'failed'
  /** Its own process, apart from all others, is gone. */
  | 'died'
  /** Two successive beats do not list it. */
  | 'unlisted'
  /** A planned hand-over. */
  | 'drain'
  /** Something it needs was away for too long. */
  | 'unavailable';

/** The run goes back to the queue because its runner is lost. */
export interface TakeoverCommand extends Identified {
  kind: 'takeover';
  runId: string;
  epoch: number;
  cause: LeaveCause;
}

/** Ends a run that nobody may go on with before somebody has looked at it, whatever it is doing. */
export interface ParkCommand extends Identified {
  kind: 'park';
  runId: string;
  /** `needs_review`: the store was restored from a backup, and what the run did since is not in it. */
  reason: 'needs_review';
}

interface RunnerScoped extends Identified {
  runId: string;
  epoch: number;
}

/** The runner gives the run back, e.g. because it is drained, or because nothing can proceed before somebody decides. */
export interface ReleaseCommand extends RunnerScoped {
  kind: 'release';
  cause: LeaveCause | 'waiting';
  /** With the cause `waiting`. Refused as `changed` if any of it is decided, or messages came. */
  waiting?: { for: string[]; inboxEnd: number };
}

/** Progress of a run. */
export interface StepCommand extends RunnerScoped {
  kind: 'step';
  events: EventInput[];
  records: OpenRecord[];
  /** Inbox items up to this number are part of the model's conversation from here on. */
  consumedTo?: number;
  /** The sandbox from which results count from here on. */
  sandbox?: { incarnation: string };
  /** Questions whose `user_question` events are among `events`. */
  questions?: { callId: string; timeoutSeconds: number | null }[];
}

export interface Completion {
  done: boolean;
  done_reason: string;
  task_result?: string | null;
  error?: string;
  last_error?: string;
  blocked_code?: string;
  failure_reason?: string;
  models_tried?: string[];
  verified?: boolean;
  trace_id?: string;
}

/** The last commit of a run: its closing `assistant` and `completion`. */
export interface FinishCommand extends RunnerScoped {
  kind: 'finish';
  events: EventInput[];
  records: OpenRecord[];
  consumedTo?: number;
  /** Final answer, or a closure marker in parentheses. */
  text: string;
  /** Where the whole text lies; `text` is a preview of it then. */
  textBlob?: BlobReference;
  completion: Completion;
}

/** What a runner may send over its Journal. */
export type RunnerCommand = ReleaseCommand | StepCommand | FinishCommand;

export type Command =
  | CreateCommand
  | AcceptCommand
  | MessageCommand
  | InterruptCommand
  | CancelCommand
  | BindCommand
  | FenceCommand
  | TerminateCommand
  | AnswerCommand
  | ExpireCommand
  | RecoverCommand
  | ClaimCommand
  | TakeoverCommand
  | ParkCommand
  | RunnerCommand;

export type { LogRecord };

/** Why a command was refused; stable words. */
export type RejectReason =
  | 'session_not_found'
  | 'session_exists'
  | 'session_running'
  | 'session_terminated'
  | 'no_active_run'
  /** Another epoch, another run, or none: the sender must stop and write nothing. */
  | 'fenced'
  /** The queued run was claimed or changed by another. */
  | 'lost'
  /** The final commit came before all inbox items reached the model. */
  | 'inbox'
  /** What a run wanted to wait for is decided, or messages came; or what a new run was looked at with is no more so. */
  | 'changed'
  /** The question has its answer, or was declined. */
  | 'question_decided'
  | 'nothing_to_recover'
  /** No more ranges of events can be cut. */
  | 'cuts_exhausted'
  /** A command that would make the head too large. */
  | 'head_too_large'
  | 'invalid'
  | 'idempotency_key_reused';

export interface Rejection {
  reason: RejectReason;
  message: string;
}

import type { EffectClass, EventInput, ToolDescriptor } from '@margay/contracts';
import type { Completion, Head, LogRecord, OpenRecord, QuestionOutcome } from '@margay/log';

/** Time as the engine sees it. */
export abstract class Clock {
  /** Wall clock, milliseconds since the epoch; for showing only. */
  abstract nowMs(): number;
  /** Milliseconds of a clock that never jumps. */
  abstract monotonicMs(): number;
  /** Resolves after `ms`, or at once when the signal aborts (it never rejects). */
  abstract sleep(ms: number, signal?: AbortSignal): Promise<void>;
}

/** Randomness of the engine: instance names, jitter. */
export abstract class Ids {
  /** Lower-case hex. */
  abstract hex(characters: number): string;
  /** Uniform in [0, 1). */
  abstract random(): number;
}

/** A message as a model provider gets it, before it is put into the provider's own form. */
export type ModelMessage =
  | { role: 'system'; text: string }
  | { role: 'user'; text: string; images?: ModelImage[] }
  | { role: 'assistant'; text: string; toolCalls: ModelToolCall[] }
  | { role: 'tool'; callId: string; text: string; isError: boolean; images?: ModelImage[] };

export interface ModelImage {
  mediaType: string;
  base64: string;
}

export interface ModelToolCall {
  /** Our id; the one that messages are paired by. */
  callId: string;
  name: string;
  /** The argument text exactly as the model wrote it; it need not be JSON. */
  argumentsText: string;
}

export interface ModelTool {
  name: string;
  description: string;
  /** JSON Schema. */
  parameters: Record<string, unknown>;
}

export interface ModelRequest {
  model: string;
  messages: ModelMessage[];
  tools: ModelTool[];
}

export interface ModelUsage {
  inputTokens: number;
  outputTokens: number;
  cacheReadTokens: number;
  cacheCreationTokens: number;
  reasoningTokens: number;
}

export interface ModelAnswer {
  /** Model that answered, as the provider names it. */
  model: string;
  text: string;
  /** In the order of the answer; ids are the provider's. */
  toolCalls: { providerCallId: string; name: string; argumentsText: string }[];
  usage: ModelUsage;
  finishReason: 'stop' | 'tool_calls' | 'length' | 'content_filter' | 'other';
}

/** Why a model call failed, as far as the resilience ladder needs to know. */
export type ModelFailureKind =
  | 'timeout'
  | 'connection'
  | 'server'
  | 'rate_limit'
  | 'quota'
  | 'authentication'
  | 'permission'
  | 'invalid_model'
  | 'context_window'
  | 'content_policy'
  | 'empty_response'
  | 'bad_request'
  | 'unknown';

/** Thrown by models. `message` is free of keys and of prompt text. */
export class ModelFailure extends Error {
  constructor(
    readonly kind: ModelFailureKind,
    message: string,
    readonly retryAfterMs?: number,
    options?: { cause?: unknown },
  ) {
    super(message, options);
    this.name = 'ModelFailure';
  }
}

export abstract class Model {
  /** Model to ask where a run names none; empty if there is none. */
  get defaultModel(): string {
    return '';
  }

  /**
   * One streamed call.
   * @param request message objects stay the same from call to call, so what is derived from one may be kept beside it
   * @param options.onText called with each fragment of text, white space kept, in order
   * @param options.onActivity called with each piece of the answer, also those without text: the call is alive
   * @throws ModelFailure; an abort rejects with the signal's reason
   */
  abstract call(
    request: ModelRequest,
    options: { signal: AbortSignal; onText: (text: string) => void; onActivity?: () => void },
  ): Promise<ModelAnswer>;
}

/** One tool call, complete: what a tool needs to run it, also again after a crash. */
export interface ToolInvocation {
  /** `<sessionId>.<epoch>.<step>.<index>`, fixed before anything was stored. */
  callId: string;
  toolId: string;
  args: Record<string, unknown>;
  effect: EffectClass;
  timeoutMs: number;
  agentId: string;
  /** Stays the same on every repetition. */
  idempotencyKey: string;
  /** read_file only: the version whose text the model holds already. */
  ifUnchanged?: FileVersion;
}

export interface FileVersion {
  mtimeNs: string;
  size: number;
}

/** `error` of an outcome that is unknown since the sandbox is gone; events show the bare word. */
export const SANDBOX_LOST = 'sandbox_lost';

export interface ToolOutcome {
  /** `unknown`: it may or may not have taken effect. */
  status: 'ok' | 'error' | 'timed_out' | 'killed' | 'cancelled' | 'unknown';
  /** What the tool returned: a string, or an object with `kind` (rest specification, kinds of results). */
  result: unknown;
  error?: string;
  /** Paths whose content this call may have changed. */
  changedFiles?: string[];
  fileVersion?: FileVersion;
  /** `ifUnchanged` holds; `result` is empty. */
  isUnchanged?: boolean;
  images?: ModelImage[];
  /** Where it ran; empty for tools without a sandbox. */
  incarnation?: string;
}

/** Nothing ran: the sandbox is another one than the run has committed to. */
export interface WrongIncarnation {
  status: 'wrong_incarnation';
  /** The sandbox that is there now. */
  incarnation: string;
  /** An attempt of this `execute` whose answer was lost may have run the call elsewhere; an unkeyed one is `unknown` then. */
  mayHaveRun?: boolean;
}

/** Why a sandbox has not come yet. */
export interface SandboxWait {
  sandboxId: string;
  state: string;
  reason: string;
  message: string;
  /** Which try it is; 0 = not counted. */
  attempt: number;
  /** Its place among those of its tenant that wait; 0 = none waits. */
  queuePosition?: number;
}

/** What a person said, and the files that came with it. */
export interface Said {
  text: string;
  attachments: { filename: string; stored_name: string }[];
}

export abstract class Tools {
  abstract list(): Promise<ToolDescriptor[]>;
  /**
   * The text with what its `@references` lead to in their places; one that leads nowhere stays as it is. Without a
   * workspace there are none.
   */
  async expandReferences({ text }: Said, _signal: AbortSignal): Promise<string> {
    return text;
  }
  /**
   * Runs a call, or attaches to it if it runs already, or returns its stored result. Never throws for a failing tool.
   * @param options.incarnation sandbox the run has committed to; empty = any (pure calls)
   *   and `none` = the run has committed to no sandbox yet: a tool that needs one answers `wrong_incarnation`
   * @param options.signal its abort asks for the end of the call: an outcome `cancelled` follows, or it finishes first.
   *   With a RunStopped `fenced` or `drained` as reason the call is to be left running for the next owner: only detach
   * @param options.onWaiting the call waits for its sandbox: its time does not run; told why where that is known
   * @param options.onNotice something happened to the workspace, which the run writes down
   * @param options.onStarted the call runs from now on: its time starts anew
   */
  abstract execute(
    invocation: ToolInvocation,
    options: {
      incarnation: string;
      signal: AbortSignal;
      onOutput?: (text: string) => void;
      onWaiting?: (wait?: SandboxWait) => void;
      onNotice?: (event: EventInput) => void;
      onStarted?: () => void;
    },
  ): Promise<ToolOutcome | WrongIncarnation>;
}

export type InboxItem =
  | { n: number; kind: 'steer' | 'interrupt'; text: string }
  /** A decision that a call waits for; `text` is its result. */
  | { n: number; kind: 'answer'; text: string; callId: string; outcome: QuestionOutcome };

/** Messages to the running agent and its orders to stop. */
export abstract class Inbox {
  /** Items with numbers above `afterN`, ascending. */
  abstract since(afterN: number): InboxItem[];
  /** Called at once for each new item. @returns stops listening */
  abstract onItem(listener: (item: InboxItem) => void): () => void;
  /** Aborted when the run was cancelled, fenced or is to be handed over; the reason is a RunStopped. */
  abstract readonly stop: AbortSignal;
}

/** `waiting`: the run was given back until somebody decides what it waits for. */
export type StopCause = 'canceled' | 'fenced' | 'drained' | 'waiting';

/** Reason of `Inbox.stop`, and what `runAgent` resolves with for it: whoever stopped the run writes what is to be written. */
export class RunStopped extends Error {
  constructor(readonly stopCause: StopCause) {
    super(`run ${stopCause}`);
    this.name = 'RunStopped';
  }
}

export interface Progress {
  events: EventInput[];
  records: OpenRecord[];
  /** Inbox items up to this number are part of the conversation after these records. */
  consumedTo?: number;
  sandbox?: { incarnation: string };
  /** Questions to a person that open with these events. */
  questions?: { callId: string; timeoutSeconds: number | null }[];
}

/** A record of the log, its references resolved, with the number of its commit. */
export type JournalRecord = { c: number; record: LogRecord | OpenRecord };

/** The log of a session as the owner of a run reads it: taken after its own claim. */
export interface OpenedRun {
  /** Head whose run and epoch are exactly the owner's. */
  head: Head;
  records: JournalRecord[];
}

/** The session log, written for one run at one epoch. */
export abstract class Journal {
  abstract open(): Promise<OpenedRun>;
  /**
   * Stores progress, durably on return, in order of the calls; several may be under way at once.
   * @returns number of the commit
   * @throws RunStopped `fenced`: stop at once and write nothing
   */
  abstract commit(progress: Progress): Promise<number>;
  /**
   * Ends the run.
   * @returns `inbox`: refused, since items came that the model has not seen: take another step
   */
  abstract finish(progress: Progress, closing: { text: string; completion: Completion }): Promise<'finished' | 'inbox'>;
  /**
   * Gives the run back until one of these questions is decided; its next owner goes on from the log.
   * @param waiting.inboxEnd number of the newest inbox item that is known here
   * @returns `changed`: refused, since one is decided already or an item came: it is in the inbox, or about to be
   */
  abstract wait(waiting: { for: string[]; inboxEnd: number }): Promise<'released' | 'changed'>;
  /** Ephemeral, never stored, lossy. `followsC` = the commit after which the fragment belongs. */
  abstract delta(delta: {
    agentId: string;
    depth: number;
    step: number;
    offset: number;
    text: string;
    followsC: number;
  }): void;
}

/** Asked before each call that wants a person's consent. */
export abstract class Approvals {
  abstract decide(request: {
    invocation: ToolInvocation;
    descriptor: ToolDescriptor;
  }): Promise<{ decision: 'allow' } | { decision: 'deny'; reason: string }>;
}

/** Everything outside the engine that a run touches. */
export interface EnginePorts {
  model: Model;
  tools: Tools;
  journal: Journal;
  inbox: Inbox;
  approvals: Approvals;
  clock: Clock;
  ids: Ids;
}

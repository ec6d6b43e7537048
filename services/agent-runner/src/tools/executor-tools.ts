import { setTimeout as sleep } from 'node:timers/promises';
import { noticeOf, type EventInput, type ToolDescriptor, type executorPb } from '@margay/contracts';
import { isMargayError, type MargayError } from '@margay/errors';
import {
  RunStopped,
  Tools,
  type Said,
  type ToolInvocation,
  type ToolOutcome,
  type WrongIncarnation,
} from '@margay/engine';
import type { AttachmentPlacer } from '../attachments/attachment-placer';
import { currentTraceparent, type GrpcClient, type Logger } from '@margay/platform';
import { CallStream } from '@margay/platform/calls';
import { outcomeOf } from './outcome-of';

type ExecuteOptions = Parameters<Tools['execute']>[1];
type ExecutorClient = GrpcClient<typeof executorPb.ExecutorDefinition>;

const RETRY_FIRST_MS = 50;
const RETRY_MAX_MS = 2_000;
const CANCEL_GRACE_MS = 1_000;
const EXPAND_TIMEOUT_MS = 60_000;
/** Nobody serves a call for so long: it fails, and the run goes on. */
const UNREACHABLE_MAX_MS = 600_000;
/** A sandbox that does not start this often will not start by being asked again. */
const STARTS_MAX = 3;
const SHOW_WAITING_MS = 3_000;

const CANCELLED: ToolOutcome = { status: 'cancelled', result: null, error: 'cancelled' };
const UNKNOWN: ToolOutcome = { status: 'unknown', result: null };

/** Whether an attempt may have started the call of which nobody knows what became. */
interface Doubt {
  mayHaveRun: boolean;
  /** The attempt under way has come so far as to be sent. */
  isSent: boolean;
}

export interface ExecutorToolsOptions {
  client: ExecutorClient;
  /** The newest grant of the run. */
  grant: () => string;
  descriptors: () => Promise<ToolDescriptor[]>;
  /** The sandbox has seen a later owner of the run. */
  onFenced: () => void;
  /** What people attached is in the sandbox before a call is sent there. */
  attachments?: Pick<AttachmentPlacer, 'place' | 'forget'>;
  logger: Logger;
}

/** Tool calls of one run, through tool-executor. A lost connection leads to the same call again: it attaches. */
export class ExecutorTools extends Tools {
  private readonly calls: CallStream<executorPb.ExecuteRequest, executorPb.ExecuteResponse>;

  constructor(private readonly options: ExecutorToolsOptions) {
    super();
    this.calls = new CallStream(() => options.client.calls({ grant: options.grant() }));
  }

  close(): void {
    this.calls.close();
  }

  list(): Promise<ToolDescriptor[]> {
    return this.options.descriptors();
  }

  /** The sandbox may have to be started for it; where that fails, or takes long, the words stay as they are. */
  override async expandReferences({ text, attachments }: Said, signal: AbortSignal): Promise<string> {
    const { client, grant, logger } = this.options;
    try {
      if (attachments.length > 0) await this.options.attachments?.place();
      const named = attachments.map(({ filename, stored_name: storedName }) => ({ filename, storedName }));
      const options = { grant: grant(), timeoutMs: EXPAND_TIMEOUT_MS, signal };
      return (await client.expandReferences({ text, attachments: named }, options)).text;
    } catch (error) {
      logger.warn({ err: error }, 'references in a message could not be looked up');
      return text;
    }
  }

  async execute(invocation: ToolInvocation, options: ExecuteOptions): Promise<ToolOutcome | WrongIncarnation> {
    const { signal } = options;
    if (signal.aborted) return CANCELLED;
    const cancel = (): void => this.onAbort(invocation.callId, signal);
    signal.addEventListener('abort', cancel, { once: true });
    try {
      return await this.untilAnswered(invocation, options);
    } finally {
      signal.removeEventListener('abort', cancel);
    }
  }

  private async untilAnswered(
    invocation: ToolInvocation,
    options: ExecuteOptions,
  ): Promise<ToolOutcome | WrongIncarnation> {
    const { signal } = options;
    let delayMs = RETRY_FIRST_MS;
    const doubt: Doubt = { mayHaveRun: false, isSent: false };
    const sinceMs = performance.now();
    let failedStarts = 0;
    for (;;) {
      try {
        doubt.isSent = false;
        if (!(await this.placed(options))) return givenUp(invocation, signal, doubt);
        doubt.isSent = true;
        const outcome = await this.attempt(invocation, options, doubt);
        if (outcome.status === 'wrong_incarnation') this.options.attachments?.forget();
        return outcome.status === 'wrong_incarnation' && doubt.mayHaveRun ? { ...outcome, mayHaveRun: true } : outcome;
      } catch (error) {
        const final = this.finalOutcome(error, invocation, signal, doubt);
        if (final) return final;
        if (isFailedStart(error)) failedStarts += 1;
        if (failedStarts >= STARTS_MAX || performance.now() - sinceMs > UNREACHABLE_MAX_MS)
          return failed(invocation, doubt, (error as Error).message);
      }
      options.onWaiting?.();
      await sleep(delayMs * (0.5 + Math.random()), undefined, { signal }).catch(() => undefined);
      // Never sent again: its end was asked for, and where it never ran it would start now.
      if (signal.aborted) return givenUp(invocation, signal, doubt);
      delayMs = Math.min(delayMs * 2, RETRY_MAX_MS);
    }
  }

  /** Says that the call waits where the sandbox has to be started for the files. @returns false: the call was aborted */
  private async placed({ onWaiting, signal }: ExecuteOptions): Promise<boolean> {
    const { attachments } = this.options;
    if (!attachments) return true;
    const timer = setTimeout(() => onWaiting?.(), SHOW_WAITING_MS);
    let leave: () => void = () => undefined;
    const aborted = new Promise<void>((resolve) => (leave = resolve));
    signal.addEventListener('abort', leave, { once: true });
    try {
      await Promise.race([attachments.place(), aborted]);
      return !signal.aborted;
    } finally {
      clearTimeout(timer);
      signal.removeEventListener('abort', leave);
    }
  }

  /** The outcome that an error means; undefined: the call is to be sent again. */
  private finalOutcome(
    error: unknown,
    invocation: ToolInvocation,
    signal: AbortSignal,
    doubt: Doubt,
  ): ToolOutcome | undefined {
    if (isMargayError(error) && error.reason === 'stale_epoch') {
      this.options.onFenced();
      return { ...CANCELLED, error: error.message };
    }
    if (doubt.isSent && leavesDoubt(error)) doubt.mayHaveRun = true;
    if (signal.aborted) return givenUp(invocation, signal, doubt);
    if (!isMargayError(error)) {
      this.options.logger.error({ err: error, toolCallId: invocation.callId }, 'a tool call failed unexpectedly');
      return failed(invocation, doubt, 'the tool call failed inside Margay');
    }
    return isTransport(error) ? undefined : failed(invocation, doubt, error.message);
  }

  private async attempt(
    invocation: ToolInvocation,
    { incarnation, signal, onOutput, onWaiting, onNotice, onStarted }: ExecuteOptions,
    doubt: Doubt,
  ): Promise<ToolOutcome | WrongIncarnation> {
    const { callId, toolId, args, timeoutMs, ifUnchanged } = invocation;
    const request: executorPb.ExecuteRequest = {
      callId,
      toolId,
      argsJson: JSON.stringify(args),
      timeoutMs,
      fromOffset: 0,
      incarnation,
      ...(ifUnchanged ? { ifUnchanged } : {}),
    };
    let runsAt = '';
    let outcome: ToolOutcome | WrongIncarnation | undefined;
    // A stop for handing over only detaches; every other one has asked for the end of the call and waits for its outcome.
    const detach = detaching(signal);
    try {
      const options = { grant: this.options.grant(), traceparent: currentTraceparent(), signal: detach.signal };
      const call = this.calls.execute(request, options);
      for await (const { message } of call) {
        if (message?.$case === 'waiting') onWaiting?.(message.value);
        const notice = message?.$case === 'notice' ? noticeIn(message.value) : undefined;
        if (notice) onNotice?.(notice);
        if (message?.$case === 'started') {
          doubt.mayHaveRun = true;
          runsAt = message.value.incarnation;
          onStarted?.();
        }
        if (message?.$case === 'output') onOutput?.(Buffer.from(message.value.bytes).toString('utf8'));
        if (message?.$case === 'wrongIncarnation')
          outcome = { status: 'wrong_incarnation', incarnation: message.value.incarnation };
        if (message?.$case === 'finished') outcome = outcomeOf(message.value, runsAt);
      }
    } finally {
      detach.release();
    }
    return outcome ?? failed(invocation, doubt, 'the tool call ended without a result');
  }

  private onAbort(callId: string, signal: AbortSignal): void {
    if (isHandOver(signal)) return;
    this.options.client
      .cancelCall({ callId, graceMs: CANCEL_GRACE_MS }, { grant: this.options.grant() })
      .catch((error: unknown) =>
        this.options.logger.warn({ err: error, toolCallId: callId }, 'a call could not be cancelled'),
      );
  }
}

/** One of a later version is of no use to this one. */
function noticeIn({ type, payloadJson }: executorPb.ExecuteNotice): EventInput | undefined {
  return noticeOf(type, JSON.parse(payloadJson));
}

/** The connection failed, not the call. */
function isTransport({ code, reason }: MargayError): boolean {
  return code === 'CANCELLED' || (code === 'UNAVAILABLE' && reason !== 'sandbox_unavailable');
}

/** There was no sandbox in which anything could have run. */
function isFailedStart(error: unknown): boolean {
  return isMargayError(error) && error.reason === 'sandbox_start_failed';
}

/** Nobody knows how far the call came. */
function leavesDoubt(error: unknown): boolean {
  if (isFailedStart(error)) return false;
  return !isMargayError(error) || isTransport(error) || error.code === 'INTERNAL';
}

function isHandOver({ reason }: AbortSignal): boolean {
  return reason instanceof RunStopped && reason.stopCause !== 'canceled';
}

/** Aborts when the run is handed over or fenced, and a while after any other abort, should its outcome never come. */
function detaching(signal: AbortSignal): { signal: AbortSignal; release: () => void } {
  const detach = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const onAbort = (): void => {
    if (isHandOver(signal)) detach.abort(signal.reason);
    else timer = setTimeout(() => detach.abort(signal.reason), 2 * CANCEL_GRACE_MS);
  };
  signal.addEventListener('abort', onAbort, { once: true });
  return {
    signal: detach.signal,
    release: () => {
      clearTimeout(timer);
      signal.removeEventListener('abort', onAbort);
    },
  };
}

/** The end of the call was asked for before anything was heard of it. */
function givenUp({ effect }: ToolInvocation, signal: AbortSignal, { mayHaveRun }: Doubt): ToolOutcome {
  return mayHaveRun && effect === 'unkeyed' && !isHandOver(signal) ? UNKNOWN : CANCELLED;
}

/** What is not known of an unkeyed call is not called a failure: the model would repeat it. */
function failed({ effect }: ToolInvocation, { mayHaveRun }: Doubt, error: string): ToolOutcome {
  return mayHaveRun && effect === 'unkeyed' ? { ...UNKNOWN, error } : { status: 'error', result: null, error };
}

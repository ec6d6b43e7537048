import { setTimeout as sleep } from 'node:timers/promises';
import { type ToolDescriptor, type executorPb } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import { RunStopped, Tools, type ToolInvocation, type ToolOutcome, type WrongIncarnation } from '@margay/engine';
import type { GrpcClient, Logger } from '@margay/platform';

type ExecuteOptions = Parameters<Tools['execute']>[1];
type ExecutorClient = GrpcClient<typeof executorPb.ExecutorDefinition>;

const RETRY_FIRST_MS = 50;
const RETRY_MAX_MS = 2_000;
const CANCEL_GRACE_MS = 1_000;
const STATUSES = new Set(['ok', 'error', 'timed_out', 'killed', 'cancelled', 'unknown']);

export interface ExecutorToolsOptions {
  client: ExecutorClient;
  /** The newest grant of the run. */
  grant: () => string;
  descriptors: () => Promise<ToolDescriptor[]>;
  /** The sandbox has seen a later owner of the run. */
  onFenced: () => void;
  logger: Logger;
}

/** Tool calls of one run, through tool-executor. A lost connection leads to the same call again: it attaches. */
export class ExecutorTools extends Tools {
  constructor(private readonly options: ExecutorToolsOptions) {
    super();
  }

  list(): Promise<ToolDescriptor[]> {
    return this.options.descriptors();
  }

  async execute(invocation: ToolInvocation, options: ExecuteOptions): Promise<ToolOutcome | WrongIncarnation> {
    const { signal } = options;
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
    let delayMs = RETRY_FIRST_MS;
    // Whether an attempt was sent of which nobody knows what became.
    let mayHaveRun = false;
    for (;;) {
      try {
        const outcome = await this.attempt(invocation, options);
        return outcome.status === 'wrong_incarnation' && mayHaveRun ? { ...outcome, mayHaveRun } : outcome;
      } catch (error) {
        const final = this.finalOutcome(error, options.signal);
        if (final) return final;
        mayHaveRun = true;
      }
      options.onWaiting?.();
      await sleep(delayMs * (0.5 + Math.random()));
      delayMs = Math.min(delayMs * 2, RETRY_MAX_MS);
    }
  }

  /** The outcome that an error means; undefined: the call is to be sent again. */
  private finalOutcome(error: unknown, signal: AbortSignal): ToolOutcome | undefined {
    if (signal.aborted) return { status: 'cancelled', result: null, error: 'cancelled' };
    if (!isMargayError(error)) {
      this.options.logger.error({ err: error }, 'a tool call failed unexpectedly');
      return { status: 'error', result: null, error: 'the tool call failed inside Margay' };
    }
    if (error.reason === 'stale_epoch') {
      this.options.onFenced();
      return { status: 'cancelled', result: null, error: error.message };
    }
    const isTransport = error.code === 'UNAVAILABLE' && error.reason !== 'sandbox_unavailable';
    if (isTransport || error.code === 'CANCELLED') return undefined;
    return { status: 'error', result: null, error: error.message };
  }

  private async attempt(
    invocation: ToolInvocation,
    { incarnation, signal, onOutput, onWaiting, onStarted }: ExecuteOptions,
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
    const call = this.options.client.execute(request, { grant: this.options.grant(), signal: detaching(signal) });
    // Read to its end: leaving a stream early resets it, and servers close connections with many resets.
    for await (const { message } of call) {
      if (message?.$case === 'waiting') onWaiting?.();
      if (message?.$case === 'started') {
        runsAt = message.value.incarnation;
        onStarted?.();
      }
      if (message?.$case === 'output') onOutput?.(Buffer.from(message.value.bytes).toString('utf8'));
      if (message?.$case === 'wrongIncarnation')
        outcome = { status: 'wrong_incarnation', incarnation: message.value.incarnation };
      if (message?.$case === 'finished') outcome = outcomeOf(message.value, runsAt);
    }
    return outcome ?? { status: 'error', result: null, error: 'the tool call ended without a result' };
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

function isHandOver({ reason }: AbortSignal): boolean {
  return reason instanceof RunStopped && reason.stopCause !== 'canceled';
}

/** Aborts when the run is handed over or fenced, and a while after any other abort, should its outcome never come. */
function detaching(signal: AbortSignal): AbortSignal {
  const detach = new AbortController();
  const onAbort = (): void => {
    if (isHandOver(signal)) detach.abort(signal.reason);
    else setTimeout(() => detach.abort(signal.reason), 2 * CANCEL_GRACE_MS).unref();
  };
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  return detach.signal;
}

function outcomeOf(finished: executorPb.ExecuteFinished, incarnation: string): ToolOutcome {
  const { status, resultJson, changedFiles, fileVersion, unchanged } = finished;
  const known = STATUSES.has(status) ? (status as ToolOutcome['status']) : 'error';
  const result: unknown = resultJson === '' ? null : JSON.parse(resultJson);
  return {
    status: known,
    result,
    ...(known === 'ok' ? {} : { error: errorText(result) }),
    changedFiles,
    ...(fileVersion ? { fileVersion } : {}),
    ...(unchanged ? { isUnchanged: true } : {}),
    ...(incarnation === '' ? {} : { incarnation }),
  };
}

function errorText(result: unknown): string {
  if (typeof result === 'string') return result;
  const { error, message } = (result ?? {}) as { error?: unknown; message?: unknown };
  if (typeof error === 'string') return error;
  return typeof message === 'string' ? message : 'the tool call failed';
}

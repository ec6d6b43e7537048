import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { EventInput, executorPb, RunGrant, sandboxdPb, ToolDescriptor } from '@margay/contracts';
import { InvalidArgumentError, isMargayError, UnavailableError } from '@margay/errors';
import { ATTRIBUTE, faultPoint, iterateInSpan, type FaultPointName } from '@margay/platform';
import { BUILTIN_TOOLS, findBuiltinTool, outerTimeoutMs } from '@margay/toolbox';
import { classOf, type Refusal } from '../driver/sandbox-driver';
import type { OutsideCalls } from '../outside/outside-calls';
import type { LiveSandbox } from '../sandbox/sandbox-claims';
import type { Fence, SandboxRegistry } from '../sandbox/sandbox-registry';

/** A sandbox may be lost and replaced this often within one call. */
const ATTEMPTS = 3;
/** A claim that takes longer shows itself. */
const SHOW_WAITING_MS = 3_000;
const SHOW_CHANGE_MS = 500;
const STARTING: Refusal = { state: 'starting', reason: 'starting', message: 'The sandbox is being started.' };
const CANCEL_GRACE_MS = 1_000;
/** TERM, KILL and storing the result take this long beyond the grace at most. */
const CANCEL_MARGIN_MS = 2_000;
/** A sandbox ends its calls by itself at their time-out; one that has not by then is wedged or tampered with. */
const OVERDUE_MS = 10_000;
/** With these a sandbox refuses whom it should serve, if the records name no later owner. */
const OWNER_REFUSED = new Set(['stale_epoch', 'sandbox_bound', 'grant_audience', 'grant_invalid']);

const NOT_FOUND = { state: 'not_found' };

/** Where a fault can strike, by what the sandbox has just said. */
const POINTS: Record<string, FaultPointName | undefined> = {
  started: 'executor.during-execute',
  finished: 'executor.after-execute',
};

interface Attempt {
  request: executorPb.ExecuteRequest;
  tool: ToolDescriptor;
  grant: RunGrant;
  signal: AbortSignal;
  /** Output the caller has already. */
  offset: number;
  /** An earlier sandbox was sent the call and did not say what became of it. */
  mayHaveRun: boolean;
  /** The life of the sandbox that was sent it first. */
  sentTo?: string;
}

/** Tool calls into sandboxes, whose journal decides what a call means, and outside of them, where the guard does. */
export class ExecutorService {
  constructor(
    private readonly registry: SandboxRegistry,
    private readonly outside?: OutsideCalls,
    /** Told why the files of a sandbox could not be looked after. */
    private readonly onUnsaved: (error: unknown) => void = () => undefined,
  ) {}

  listTools(): string[] {
    const outside = this.outside?.descriptors ?? [];
    return [...BUILTIN_TOOLS, ...outside].map((tool) => JSON.stringify(tool));
  }

  /** No call of a lower epoch starts afterwards, wherever; with `kill` those under way end. */
  async fence(tenantId: string, sessionId: string, fence: Fence): Promise<void> {
    const outside = this.outside?.fence(tenantId, sessionId, fence) ?? Promise.resolve();
    const both = [this.registry.fence(tenantId, sessionId, fence), outside];
    const failed = (await Promise.allSettled(both)).find((end) => end.status === 'rejected');
    if (failed) throw failed.reason;
    // A run is over, or another process goes on with it: nobody waits for the archive.
    this.registry.save(tenantId, sessionId).catch(this.onUnsaved);
  }

  /**
   * Runs a call in the session's sandbox or attaches to it. A sandbox lost meanwhile is claimed again on the same journal,
   * which tells what became of the call. Abandoning the iteration leaves the call running.
   */
  async *execute(
    request: executorPb.ExecuteRequest,
    grant: RunGrant,
    signal: AbortSignal,
  ): AsyncIterable<executorPb.ExecuteResponse> {
    if (this.outside?.has(request.toolId)) return yield* this.outside.execute(request, grant, signal);
    const tool = findBuiltinTool(request.toolId);
    if (!tool) throw new InvalidArgumentError('unknown_tool', `There is no tool ${request.toolId}.`);
    const attempt: Attempt = { request, tool, grant, signal, offset: request.fromOffset, mayHaveRun: false };
    for (let left = ATTEMPTS; ; left -= 1) {
      const sandbox = yield* this.obtain(grant);
      for (const notice of sandbox.notices.splice(0)) yield noticed(notice);
      try {
        yield* iterateInSpan('sandbox.execute', attributesOf(attempt), () => this.through(sandbox, attempt));
        return;
      } catch (error) {
        if (signal.aborted || !(await this.mayTryAgain(sandbox, error, grant))) throw error;
        attempt.mayHaveRun ||= isSilence(error);
        if (left > 1) continue;
        if (!isLost(attempt)) throw unavailable(error);
        yield unknown(tool);
        return;
      }
    }
  }

  async cancelCall(
    tenantId: string,
    sessionId: string,
    call: executorPb.CancelCallRequest,
    grant?: RunGrant,
  ): Promise<executorPb.CancelCallResponse> {
    const { callId } = call;
    const isOutside = this.outside?.isMaking(callId) === true;
    const { state } = isOutside ? NOT_FOUND : await this.cancelInSandbox(tenantId, sessionId, call, grant);
    if (state !== NOT_FOUND.state) return { state };
    return { state: (await this.outside?.cancel(tenantId, sessionId, callId)) ?? state };
  }

  private async cancelInSandbox(
    tenantId: string,
    sessionId: string,
    call: executorPb.CancelCallRequest,
    grant?: RunGrant,
  ): Promise<executorPb.CancelCallResponse> {
    const sandbox = await this.registry.reach(tenantId, sessionId);
    if (!sandbox) return NOT_FOUND;
    const token = grant ? await this.registry.tokenFor(sandbox, grant) : await this.registry.ownerToken(sandbox);
    const graceMs = call.graceMs > 0 ? call.graceMs : CANCEL_GRACE_MS;
    const timeoutMs = graceMs + CANCEL_MARGIN_MS;
    try {
      return await sandbox.connection.client.cancelCall({ callId: call.callId, graceMs }, { grant: token, timeoutMs });
    } catch (error) {
      if (!isSilence(error)) throw error;
      // A command can stop the daemon, which is of the same user; it does not outlive a cancel by that.
      await this.registry.replace(sandbox, { reason: 'cancel not answered', forget: 'nothing' });
      return { state: 'cancelled' };
    }
  }

  /** Sees to it that the next attempt meets another sandbox, where that can help. */
  private async mayTryAgain(sandbox: LiveSandbox, error: unknown, grant: RunGrant): Promise<boolean> {
    if (error instanceof SandboxOverdue) {
      await this.registry.replace(sandbox, { reason: 'overdue', forget: 'nothing' });
      return true;
    }
    if (!isMargayError(error)) return false;
    if (error.code === 'UNAVAILABLE') {
      this.registry.forsake(sandbox);
      return true;
    }
    if (!OWNER_REFUSED.has(error.reason) || !(await this.registry.isCurrent(grant))) return false;
    await this.registry.replace(sandbox, { reason: error.reason, forget: 'journal' });
    return true;
  }

  /** Says why it takes long, after a while and whenever that changes. */
  private async *obtain(grant: RunGrant): AsyncGenerator<executorPb.ExecuteResponse, LiveSandbox> {
    const claim = this.registry.obtain(grant);
    if (this.registry.isReady(grant.tenantId, grant.sessionId)) return claim;
    let shown: Refusal | undefined;
    for (let waitMs = SHOW_WAITING_MS; ; waitMs = SHOW_CHANGE_MS) {
      if (await isSettledWithin(claim, waitMs)) return claim;
      const refusal = this.registry.refusalOf(grant.sessionId) ?? STARTING;
      if (shown && sameText(shown, refusal)) continue;
      shown = refusal;
      yield waiting(refusal);
    }
  }

  private async *through(sandbox: LiveSandbox, attempt: Attempt): AsyncIterable<executorPb.ExecuteResponse> {
    const end = this.registry.use(sandbox);
    let timer: NodeJS.Timeout | undefined;
    try {
      const token = await this.registry.tokenFor(sandbox, attempt.grant);
      attempt.sentTo ??= sandbox.incarnation;
      const request = sandboxRequest(attempt);
      await faultPoint('executor.before-execute', () => detailOf(attempt));
      const overdue = new AbortController();
      timer = setTimeout(() => overdue.abort(), request.timeoutMs + OVERDUE_MS);
      const signal = AbortSignal.any([attempt.signal, overdue.signal]);
      const stream = sandbox.connection.calls.execute(request, { grant: token, signal });
      for await (const { message } of untilOverdue(stream, overdue.signal)) {
        if (message?.$case === 'output') attempt.offset = message.value.offset + message.value.bytes.length;
        const point = message && POINTS[message.$case];
        if (point) await faultPoint(point, () => detailOf(attempt));
        // Another journal does not know the call; without that word the caller would take it for one that never ran.
        const isOther = message?.$case === 'wrongIncarnation' && isLost(attempt);
        const meant = isOther ? undefined : this.withCause(message, sandbox);
        yield meant ? executorMessage(meant, sandbox.incarnation) : unknown(attempt.tool);
      }
    } finally {
      clearTimeout(timer);
      end();
    }
  }

  /** A container that starts again does not know why it ended. */
  private withCause(message: sandboxdPb.ExecuteResponse['message'], sandbox: LiveSandbox): typeof message {
    if (message?.$case !== 'finished' || message.value.limitHit !== 'restart') return message;
    const limitHit = this.registry.whyRestarted(sandbox) ?? message.value.limitHit;
    return { ...message, value: { ...message.value, limitHit } };
  }
}

/** The sandbox did not end a call that it should have ended by itself. */
class SandboxOverdue extends Error {}

async function* untilOverdue<T>(stream: AsyncIterable<T>, overdue: AbortSignal): AsyncIterable<T> {
  try {
    yield* stream;
  } catch (cause) {
    throw overdue.aborted ? new SandboxOverdue('The sandbox did not end a call in time.', { cause }) : cause;
  }
}

/** Errors after which the call may be running, or have run. */
function isSilence(error: unknown): boolean {
  if (error instanceof SandboxOverdue) return true;
  if (!isMargayError(error) || error.reason === 'sandbox_closing') return false;
  return error.code === 'UNAVAILABLE' || error.code === 'DEADLINE_EXCEEDED';
}

/** Nobody can tell any more whether it took effect, and it must not take effect twice. */
function isLost({ tool, mayHaveRun }: Attempt): boolean {
  return tool.effect === 'unkeyed' && mayHaveRun;
}

function unknown(tool: ToolDescriptor): executorPb.ExecuteResponse {
  const result = `The sandbox was lost while '${tool.tool_id}' was running; whether it took effect is unknown. Look before you repeat it.`;
  return {
    message: {
      $case: 'finished',
      value: {
        status: 'unknown',
        resultJson: JSON.stringify(result),
        limitHit: 'restart',
        changedFiles: [],
        durationMs: 0,
        unchanged: false,
      },
    },
  };
}

function attributesOf({ request, tool, grant }: Attempt) {
  return {
    [ATTRIBUTE.conversation]: grant.sessionId,
    [ATTRIBUTE.tenant]: grant.tenantId,
    [ATTRIBUTE.toolName]: tool.tool_id,
    [ATTRIBUTE.toolCallId]: request.callId,
    [ATTRIBUTE.toolEffect]: tool.effect,
    [ATTRIBUTE.sandboxClass]: classOf(grant),
  };
}

function detailOf({ request: { toolId, callId, argsJson } }: Attempt): string {
  return `${toolId} ${callId} ${argsJson}`;
}

function sandboxRequest(attempt: Attempt): sandboxdPb.ExecuteRequest {
  const { request, tool, offset } = attempt;
  const { callId, toolId, argsJson, timeoutMs, ifUnchanged } = request;
  // Another sandbox does not know whether it ran, and must not run it.
  const incarnation = request.incarnation || (isLost(attempt) && attempt.sentTo) || '';
  return {
    callId,
    toolId,
    argsJson,
    argHash: createHash('sha256').update(`${toolId}\0${argsJson}`).digest('hex'),
    effect: tool.effect,
    timeoutMs: timeoutMs > 0 ? timeoutMs : outerTimeoutMs(tool, parseArgs(argsJson)),
    fromOffset: offset,
    incarnation,
    ...(ifUnchanged ? { ifUnchanged } : {}),
  };
}

function executorMessage(
  message: sandboxdPb.ExecuteResponse['message'],
  incarnation: string,
): executorPb.ExecuteResponse {
  if (message?.$case === 'started') return { message: { ...message, value: { ...message.value, incarnation } } };
  return { message };
}

function parseArgs(argsJson: string): unknown {
  try {
    return JSON.parse(argsJson || '{}');
  } catch (cause) {
    throw new InvalidArgumentError('bad_arguments', 'The arguments of the call are not JSON.', { cause });
  }
}

async function isSettledWithin(claim: Promise<unknown>, waitMs: number): Promise<boolean> {
  const timer = new AbortController();
  const late = delay(waitMs, false, { signal: timer.signal });
  late.catch(() => undefined); // stopped below
  const settled = claim.then(
    () => true,
    () => true, // whoever takes the claim is told
  );
  try {
    return await Promise.race([settled, late]);
  } finally {
    timer.abort();
  }
}

function sameText(a: Refusal, b: Refusal): boolean {
  const facts = ({ state, reason, message, attempt, queuePosition }: Refusal) =>
    JSON.stringify([state, reason, message, attempt, queuePosition]);
  return facts(a) === facts(b);
}

function waiting({
  state,
  reason,
  message,
  sandboxId,
  attempt,
  queuePosition = 0,
}: Refusal): executorPb.ExecuteResponse {
  const value = { state, reason, message, sandboxId: sandboxId ?? '', attempt: attempt ?? 0, queuePosition };
  return { message: { $case: 'waiting', value } };
}

function noticed({ type, payload }: EventInput): executorPb.ExecuteResponse {
  return { message: { $case: 'notice', value: { type, payloadJson: JSON.stringify(payload) } } };
}

function unavailable(cause: unknown): Error {
  return new UnavailableError(
    'sandbox_unavailable',
    'The sandbox ended again and again during the call; nothing is known to run.',
    { cause },
  );
}

import { createHash } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { executorPb, RunGrant, sandboxdPb, ToolDescriptor } from '@margay/contracts';
import { InvalidArgumentError, isMargayError, UnavailableError } from '@margay/errors';
import { ATTRIBUTE, iterateInSpan } from '@margay/platform';
import { BUILTIN_TOOLS, findBuiltinTool, outerTimeoutMs } from '@margay/toolbox';
import { SANDBOX_CLASS } from '../metrics';
import type { LiveSandbox, SandboxRegistry } from '../sandbox/sandbox-registry';

/** A sandbox may be lost and replaced this often within one call. */
const ATTEMPTS = 3;
/** A claim that takes longer shows itself. */
const SHOW_WAITING_MS = 3_000;
const CANCEL_GRACE_MS = 1_000;

interface Attempt {
  request: executorPb.ExecuteRequest;
  tool: ToolDescriptor;
  grant: RunGrant;
  signal: AbortSignal;
  /** Output the caller has already. */
  offset: number;
}

/** Tool calls into sandboxes; what a call means is decided by the sandbox's journal. */
export class ExecutorService {
  constructor(private readonly registry: SandboxRegistry) {}

  listTools(): string[] {
    return BUILTIN_TOOLS.map((tool) => JSON.stringify(tool));
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
    const tool = findBuiltinTool(request.toolId);
    if (!tool) throw new InvalidArgumentError('unknown_tool', `There is no tool ${request.toolId}.`);
    const attempt: Attempt = { request, tool, grant, signal, offset: request.fromOffset };
    for (let left = ATTEMPTS; ; left -= 1) {
      const sandbox = yield* this.obtain(grant);
      try {
        yield* iterateInSpan('sandbox.execute', attributesOf(attempt), () => this.through(sandbox, attempt));
        return;
      } catch (error) {
        if (signal.aborted || !isMargayError(error) || error.code !== 'UNAVAILABLE') throw error;
        this.registry.forsake(sandbox);
        if (left <= 1) throw unavailable(error);
      }
    }
  }

  async cancelCall(tenantId: string, sessionId: string, call: executorPb.CancelCallRequest, grant?: RunGrant) {
    const sandbox = this.registry.find(tenantId, sessionId);
    if (!sandbox) return { state: 'not_found' };
    const token = grant ? await this.registry.tokenFor(sandbox, grant) : await this.registry.ownerToken(sandbox);
    const graceMs = call.graceMs > 0 ? call.graceMs : CANCEL_GRACE_MS;
    return sandbox.client.cancelCall({ callId: call.callId, graceMs }, { grant: token });
  }

  private async *obtain(grant: RunGrant): AsyncGenerator<executorPb.ExecuteResponse, LiveSandbox> {
    const claim = this.registry.obtain(grant);
    const timer = new AbortController();
    const slow = delay(SHOW_WAITING_MS, 'slow' as const, { signal: timer.signal });
    slow.catch(() => undefined); // stopped below
    try {
      if ((await Promise.race([claim, slow])) === 'slow') yield waiting();
      return await claim;
    } finally {
      timer.abort();
    }
  }

  private async *through(sandbox: LiveSandbox, attempt: Attempt): AsyncIterable<executorPb.ExecuteResponse> {
    const end = this.registry.use(sandbox);
    try {
      const token = await this.registry.tokenFor(sandbox, attempt.grant);
      const stream = sandbox.client.execute(sandboxRequest(attempt), { grant: token, signal: attempt.signal });
      for await (const { message } of stream) {
        if (message?.$case === 'output') attempt.offset = message.value.offset + message.value.bytes.length;
        yield executorMessage(message, sandbox.incarnation);
      }
    } finally {
      end();
    }
  }
}

function attributesOf({ request, tool, grant }: Attempt) {
  return {
    [ATTRIBUTE.conversation]: grant.sessionId,
    [ATTRIBUTE.tenant]: grant.tenantId,
    [ATTRIBUTE.toolName]: tool.tool_id,
    [ATTRIBUTE.toolCallId]: request.callId,
    [ATTRIBUTE.toolEffect]: tool.effect,
    [ATTRIBUTE.sandboxClass]: SANDBOX_CLASS,
  };
}

function sandboxRequest({ request, tool, offset }: Attempt): sandboxdPb.ExecuteRequest {
  const { callId, toolId, argsJson, timeoutMs, ifUnchanged, incarnation } = request;
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

function waiting(): executorPb.ExecuteResponse {
  return {
    message: {
      $case: 'waiting',
      value: { state: 'starting', reason: 'starting', message: 'The sandbox is being started.' },
    },
  };
}

function unavailable(cause: unknown): Error {
  return new UnavailableError(
    'sandbox_unavailable',
    'The sandbox ended again and again during the call; nothing is known to run.',
    { cause },
  );
}

import { Model, type ModelAnswer, type ModelRequest, type ModelToolCall, type ModelUsage } from '@margay/engine';

/** What a scripted model answers; everything is optional. */
export interface ScriptedAnswer {
  text?: string;
  /** Arguments as an object, or as the text that is sent. */
  calls?: readonly { name: string; args?: Record<string, unknown> | string }[];
  usage?: Partial<ModelUsage>;
  finishReason?: ModelAnswer['finishReason'];
  /** Thrown instead of an answer. */
  failure?: Error;
  /** Says `text` and then never ends, until it is aborted. */
  hangs?: boolean;
}

type ModelScript = readonly ScriptedAnswer[] | ((request: ModelRequest, n: number) => ScriptedAnswer);

/** A model port in this process that answers by script and keeps what it was asked, as JSON texts of that moment. */
export class ScriptedModel extends Model {
  readonly requests: string[] = [];
  /** Calls under way. */
  pending = 0;

  constructor(private readonly script: ModelScript) {
    super();
  }

  override get defaultModel(): string {
    return 'scripted';
  }

  async call(
    request: ModelRequest,
    options: { signal: AbortSignal; onText: (text: string) => void },
  ): Promise<ModelAnswer> {
    this.requests.push(JSON.stringify(request));
    const n = this.requests.length;
    const answer = typeof this.script === 'function' ? this.script(request, n) : this.script[n - 1];
    if (!answer) throw new Error(`the script has no answer ${n}`);
    this.pending += 1;
    try {
      await Promise.resolve();
      options.signal.throwIfAborted();
      if (answer.failure) throw answer.failure;
      if (answer.text) options.onText(answer.text);
      if (answer.hangs) await aborted(options.signal);
      return toAnswer(answer, request.model, n);
    } finally {
      this.pending -= 1;
    }
  }
}

export function scriptedModel(script: ModelScript): ScriptedModel {
  return new ScriptedModel(script);
}

function toAnswer(answer: ScriptedAnswer, model: string, n: number): ModelAnswer {
  const toolCalls = (answer.calls ?? []).map(({ name, args = {} }, index) => ({
    providerCallId: `call_${n}_${index}`,
    name,
    argumentsText: typeof args === 'string' ? args : JSON.stringify(args),
  }));
  const usage = { inputTokens: 100, outputTokens: 10, cacheReadTokens: 0, cacheCreationTokens: 0, reasoningTokens: 0 };
  return {
    model,
    text: answer.text ?? '',
    toolCalls,
    usage: { ...usage, ...answer.usage },
    finishReason: answer.finishReason ?? (toolCalls.length > 0 ? 'tool_calls' : 'stop'),
  };
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) =>
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true }),
  );
}

/** @throws unless every call is answered right behind its message, once, and nothing else is answered */
export function assertPaired(request: ModelRequest): void {
  let open: string[] = [];
  for (const message of request.messages) {
    if (message.role === 'tool') {
      if (open[0] !== message.callId) throw new Error(`result of ${message.callId} where ${open[0]} was expected`);
      open.shift();
    } else {
      if (open.length > 0) throw new Error(`${message.role} message while ${open.join(', ')} are unanswered`);
      open = message.role === 'assistant' ? message.toolCalls.map(({ callId }: ModelToolCall) => callId) : [];
    }
  }
  if (open.length > 0) throw new Error(`${open.join(', ')} are unanswered`);
}

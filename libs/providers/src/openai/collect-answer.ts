import { ModelFailure, type ModelAnswer, type ModelUsage } from '@margay/engine';
import type { ChatCompletionChunk } from 'openai/resources/chat/completions';

type Delta = ChatCompletionChunk.Choice.Delta;
type CallDelta = NonNullable<Delta['tool_calls']>[number];
type CompletionUsage = NonNullable<ChatCompletionChunk['usage']> & { cache_creation_input_tokens?: number };

interface CallParts {
  id: string;
  name: string;
  argumentsText: string;
}

/** Text and arguments of one answer together: far above what models give, far below what a process can hold. */
const ANSWER_MAX_CHARS = 8 * 1024 * 1024;
/** What a call costs beside its arguments. */
const CALL_CHARS = 200;

/** Puts a streamed answer together. Lenient in form, since compatible servers are compatible in part only. */
export class AnswerCollector {
  private text = '';
  private chars = 0;
  private model = '';
  private finish: string | undefined;
  private usage: CompletionUsage | undefined;
  private readonly calls: CallParts[] = [];
  private readonly callByIndex = new Map<number, CallParts>();

  /**
   * @returns the chunk's text
   * @throws ModelFailure `server` where the answer does not end
   */
  add(chunk: ChatCompletionChunk): string {
    if (chunk.model) this.model = chunk.model;
    if (chunk.usage) this.usage = chunk.usage;
    // Some servers send `choices: null` with the usage, or a whole `message` instead of a delta.
    const choice = (chunk.choices as ChatCompletionChunk['choices'] | null)?.[0] as
      (ChatCompletionChunk.Choice & { message?: Delta }) | undefined;
    if (!choice) return '';
    if (choice.finish_reason) this.finish = choice.finish_reason;
    const delta = (choice.delta as Delta | undefined) ?? choice.message;
    for (const call of delta?.tool_calls ?? []) this.addCall(call);
    const text = delta?.content ?? '';
    this.grow(text.length);
    this.text += text;
    return text;
  }

  /**
   * @param requestChars size of the request, for servers that don't count tokens
   * @throws ModelFailure `connection` if the stream ended before the answer did
   */
  answer(request: { model: string; chars: number }): ModelAnswer {
    if (this.finish === undefined && this.usage === undefined)
      throw new ModelFailure('connection', 'the model stream ended before the answer was complete');
    const toolCalls = this.calls
      .filter(({ name }) => name !== '')
      .map(({ id, name, argumentsText }) => ({ providerCallId: id, name, argumentsText }));
    return {
      model: this.model || request.model,
      text: this.text,
      toolCalls,
      usage: this.usage ? toUsage(this.usage) : this.estimate(request.chars),
      finishReason: finishReason(this.finish, toolCalls.length > 0),
    };
  }

  private addCall(delta: CallDelta): void {
    const call = this.callOf(delta);
    if (delta.id) call.id = delta.id;
    if (delta.function?.name && call.name === '') call.name = delta.function.name;
    const more: unknown = delta.function?.arguments ?? '';
    const text = typeof more === 'string' ? more : JSON.stringify(more);
    this.grow(text.length);
    call.argumentsText += text;
  }

  private grow(chars: number): void {
    this.chars += chars;
    if (this.chars > ANSWER_MAX_CHARS)
      throw new ModelFailure('server', `the model's answer is longer than ${ANSWER_MAX_CHARS} characters`);
  }

  /** By index; a second id at the same index is another call. Without an index by id, else the last call. */
  private callOf(delta: CallDelta): CallParts {
    const index = delta.index as number | null | undefined;
    const isNumbered = typeof index === 'number';
    const known = isNumbered
      ? this.callByIndex.get(index)
      : delta.id
        ? this.calls.find(({ id }) => id === delta.id)
        : this.calls.at(-1);
    const isSame = known && (!delta.id || known.id === '' || known.id === delta.id);
    if (isSame && !this.isNextUnmarked(delta, known)) return known;
    const call = { id: '', name: '', argumentsText: '' };
    this.grow(CALL_CHARS);
    this.calls.push(call);
    if (isNumbered) this.callByIndex.set(index, call);
    return call;
  }

  /** Whole calls without index and id, one behind the other: a name after complete arguments starts the next. */
  private isNextUnmarked(delta: CallDelta, known: CallParts): boolean {
    const isMarked = typeof (delta.index as number | undefined) === 'number' || Boolean(delta.id);
    return !isMarked && Boolean(delta.function?.name) && known.argumentsText !== '';
  }

  private estimate(requestChars: number): ModelUsage {
    const outputChars = this.calls.reduce((sum, call) => sum + call.name.length + call.argumentsText.length, 0);
    return {
      inputTokens: Math.ceil(requestChars / CHARS_PER_TOKEN),
      outputTokens: Math.ceil((this.text.length + outputChars) / CHARS_PER_TOKEN),
      cacheReadTokens: 0,
      cacheCreationTokens: 0,
      reasoningTokens: 0,
    };
  }
}

const CHARS_PER_TOKEN = 4;

function toUsage(usage: CompletionUsage): ModelUsage {
  return {
    inputTokens: count(usage.prompt_tokens),
    outputTokens: count(usage.completion_tokens),
    cacheReadTokens: count(usage.prompt_tokens_details?.cached_tokens),
    cacheCreationTokens: count(usage.cache_creation_input_tokens),
    reasoningTokens: count(usage.completion_tokens_details?.reasoning_tokens),
  };
}

/** Some servers estimate fractions, or count in texts; a wrong count must not cost the answer. */
function count(tokens: unknown): number {
  const number = Math.round(Number(tokens ?? 0));
  return Number.isSafeInteger(number) && number > 0 ? number : 0;
}

function finishReason(reason: string | undefined, hasCalls: boolean): ModelAnswer['finishReason'] {
  switch (reason) {
    case 'length':
    case 'content_filter':
      return reason;
    case 'tool_calls':
    case 'function_call':
    case 'stop':
      return hasCalls ? 'tool_calls' : 'stop';
    default:
      return hasCalls ? 'tool_calls' : 'other';
  }
}

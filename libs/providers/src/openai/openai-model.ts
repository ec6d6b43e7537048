import { Model, type ModelAnswer, type ModelRequest } from '@margay/engine';
import OpenAI from 'openai';
import type { ChatCompletionChunk } from 'openai/resources/chat/completions';
import type { Stream } from 'openai/streaming';
import { keepAliveFetch } from '../keep-alive-fetch';
import { classifyError } from './classify-error';
import { AnswerCollector } from './collect-answer';
import { requestBody } from './request-body';
import type { SystemMessages } from './wire-messages';

export interface ProviderAccess {
  /** Such as `http://127.0.0.1:8080/v1`. */
  baseUrl?: string;
  /** Empty or absent: no authorization is sent. */
  apiKey?: string;
  headers?: Record<string, string>;
  /** Default: a lean one over kept connections. */
  fetch?: typeof globalThis.fetch;
}

export interface OpenAiModelOptions extends ProviderAccess {
  /** Model of runs that name none. */
  model?: string;
  /** What becomes of system messages after the first; `merge` for providers that refuse them. Default `keep`. */
  systemMessages?: SystemMessages;
}

/** Above every time-out of the engine. */
const TRANSPORT_TIMEOUT_MS = 900_000;

/** Any endpoint that speaks OpenAI's chat completions, streaming. Repeating a failed call is the caller's. */
export function openAiModel(options: OpenAiModelOptions): Model {
  return new OpenAiModel(options);
}

/** Nothing is taken from the environment, nothing is logged, nothing is retried. */
export function openAiClient({ baseUrl, apiKey, headers, fetch = keepAliveFetch }: ProviderAccess): OpenAI {
  return new OpenAI({
    ...(baseUrl === undefined ? {} : { baseURL: baseUrl }),
    apiKey: apiKey || 'none',
    organization: null,
    project: null,
    maxRetries: 0,
    timeout: TRANSPORT_TIMEOUT_MS,
    logLevel: 'off',
    defaultHeaders: { ...(apiKey ? {} : { authorization: null }), ...headers },
    fetch,
  });
}

class OpenAiModel extends Model {
  private readonly client: OpenAI;
  private readonly secrets: string[];

  constructor(private readonly options: OpenAiModelOptions) {
    super();
    this.client = openAiClient(options);
    this.secrets = [options.apiKey ?? '', ...Object.values(options.headers ?? {})];
  }

  override get defaultModel(): string {
    return this.options.model ?? '';
  }

  async call(
    request: ModelRequest,
    { signal, onText, onActivity }: { signal: AbortSignal; onText: (text: string) => void; onActivity?: () => void },
  ): Promise<ModelAnswer> {
    const body = requestBody(request, this.options.systemMessages ?? 'keep');
    const collector = new AnswerCollector();
    try {
      signal.throwIfAborted();
      for await (const chunk of await this.open(body, signal)) {
        onActivity?.();
        const text = collector.add(chunk);
        if (text !== '') onText(text);
      }
      signal.throwIfAborted(); // an aborted stream just ends
      return collector.answer({ model: request.model, chars: body.length });
    } catch (error) {
      signal.throwIfAborted();
      throw classifyError(error, this.secrets);
    }
  }

  /** The body goes out as text, which spares serialising the whole conversation at each step. */
  private open(body: string, signal: AbortSignal): PromiseLike<Stream<ChatCompletionChunk>> {
    return this.client.post('/chat/completions', {
      body,
      stream: true,
      signal,
      headers: { 'content-type': 'application/json' },
    });
  }
}

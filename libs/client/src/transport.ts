import { DeadlineExceededError, InternalError, isMargayError, type HttpFacts, type MargayError } from '@margay/errors';
import { aborted, fullJitterMs, sleep } from './clock';
import { answerError, networkError } from './http-error';
import type { RequestOptions, Settings } from './options';
import { ulid } from './ulid';

export type Query = Readonly<Record<string, string | number | boolean | readonly string[] | undefined>>;

export interface Call extends RequestOptions {
  query?: Query;
  /** Sent as JSON. */
  body?: unknown;
  /** Sent as it is, instead of a body. */
  file?: Blob | Uint8Array<ArrayBuffer>;
  /** The route changes nothing when repeated, though its method is POST. */
  repeatable?: boolean;
}

const REPEATABLE = /^(GET|HEAD|PUT|DELETE)$/;
const RETRIED_STATUS = new Set([429, 502, 503, 504]);

/** Sends requests: key, headers, time-out, retries of what is safe to repeat, errors as `MargayError`. */
export class Transport {
  constructor(readonly settings: Settings) {}

  /** The parsed JSON answer; `undefined` for an empty one. */
  async request<T>(method: string, path: string, call: Call = {}): Promise<T> {
    const { clock, maxAttempts } = this.settings;
    const timeoutMs = call.timeoutMs ?? this.settings.timeoutMs;
    const endsAt = clock.now() + timeoutMs;
    const repeatable = call.repeatable || call.idempotencyKey !== undefined || REPEATABLE.test(method);
    for (let attempt = 1; ; attempt += 1) {
      try {
        return (await this.#bounded(method, path, call, { timeoutMs, endsAt })) as T;
      } catch (error) {
        if (attempt >= maxAttempts || !repeatable || !isWorthRepeating(error)) throw error;
        const delayMs = Math.max(fullJitterMs(clock, attempt - 1, 250, 8000), error.retryAfterMs ?? 0);
        if (clock.now() + delayMs >= endsAt) throw error;
        await sleep(clock, delayMs, `${method} ${path}`, call.signal);
      }
    }
  }

  /** One answer whose body is still to be read; a 401 asks for the key once more. The caller's signal ends it. */
  async open(method: string, path: string, call: Call, signal: AbortSignal): Promise<Response> {
    const http = { method, path };
    const response = await this.#fetch(http, call, signal);
    if (response.ok) return response;
    if (response.status === 401 && this.settings.keyRenews) {
      await response.body?.cancel();
      const second = await this.#fetch(http, call, signal);
      if (second.ok) return second;
      throw await this.#refusal(second, http);
    }
    throw await this.#refusal(response, http);
  }

  async #bounded(
    method: string,
    path: string,
    call: Call,
    limit: { timeoutMs: number; endsAt: number },
  ): Promise<unknown> {
    const { clock } = this.settings;
    const controller = new AbortController();
    const stop = (): void => controller.abort();
    let timedOut = false;
    const timer = clock.setTimeout(() => {
      timedOut = true;
      stop();
    }, limit.endsAt - clock.now());
    call.signal?.addEventListener('abort', stop);
    try {
      if (call.signal?.aborted) throw aborted(`${method} ${path}`, call.signal);
      return await this.#exchange(method, path, call, controller.signal);
    } catch (error) {
      if (call.signal?.aborted) throw aborted(`${method} ${path}`, call.signal);
      if (timedOut) throw timeoutError({ method, path }, limit.timeoutMs, error);
      throw error;
    } finally {
      clock.clearTimeout(timer);
      call.signal?.removeEventListener('abort', stop);
    }
  }

  async #exchange(method: string, path: string, call: Call, signal: AbortSignal): Promise<unknown> {
    const http = { method, path };
    const text = await this.#text(await this.open(method, path, call, signal), http);
    if (text === '') return undefined;
    try {
      return JSON.parse(text);
    } catch (cause) {
      throw new InternalError('bad_answer', `${method} ${path} was answered with something else than JSON`, {
        cause,
        http,
      });
    }
  }

  async #fetch(http: HttpFacts, call: Call, signal: AbortSignal): Promise<Response> {
    const { baseUrl, apiKey, fetch } = this.settings;
    const headers: Record<string, string> = { ...this.settings.headers, 'X-API-KEY': await apiKey(), ...call.headers };
    if (call.body !== undefined) headers['Content-Type'] = 'application/json';
    else if (call.file !== undefined) headers['Content-Type'] = 'application/octet-stream';
    if (call.idempotencyKey !== undefined) headers['Idempotency-Key'] = call.idempotencyKey;
    const init: RequestInit = { method: http.method, headers, signal };
    if (call.body !== undefined) init.body = JSON.stringify(call.body);
    else if (call.file !== undefined) init.body = call.file;
    try {
      return await fetch(baseUrl + http.path + queryText(call.query), init);
    } catch (cause) {
      throw networkError(baseUrl, http, cause);
    }
  }

  async #text(response: Response, http: HttpFacts): Promise<string> {
    try {
      return await response.text();
    } catch (cause) {
      throw networkError(this.settings.baseUrl, http, cause);
    }
  }

  async #refusal(response: Response, http: HttpFacts): Promise<MargayError> {
    return answerError(response, await this.#text(response, http), http, this.settings.clock.now());
  }
}

/** Network failure, 429, 502, 503, 504, or an earlier attempt that the server is still working on. */
function isWorthRepeating(error: unknown): error is MargayError {
  if (!isMargayError(error)) return false;
  if (error.reason === 'network' || error.reason === 'idempotency_in_progress') return true;
  return RETRIED_STATUS.has(error.http?.status ?? 0);
}

function timeoutError(http: HttpFacts, timeoutMs: number, cause: unknown): MargayError {
  const text = `${http.method} ${http.path} was not answered within ${timeoutMs / 1000} s`;
  return new DeadlineExceededError('timeout', text, { cause, http });
}

function queryText(query: Query = {}): string {
  const parameters = new URLSearchParams();
  for (const [name, value] of Object.entries(query))
    for (const one of Array.isArray(value) ? value : [value])
      if (one !== undefined) parameters.append(name, String(one));
  const text = parameters.toString();
  return text && `?${text}`;
}

/** Gives a call a fresh key unless it has one, so that a lost answer is asked for again and not done twice. */
export const withKey = (transport: Transport, call: Call): Call => ({
  ...call,
  idempotencyKey: call.idempotencyKey ?? ulid(transport.settings.clock.now()),
});

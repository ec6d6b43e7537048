import { ModelFailure, type ModelFailureKind } from '@margay/engine';
import OpenAI from 'openai';

const DETAIL_MAX_CHARS = 200;

const BY_CODE: Readonly<Record<string, ModelFailureKind>> = {
  insufficient_quota: 'quota',
  billing_hard_limit_reached: 'quota',
  billing_not_active: 'quota',
  rate_limit_exceeded: 'rate_limit',
  context_length_exceeded: 'context_window',
  string_above_max_length: 'context_window',
  model_not_found: 'invalid_model',
  invalid_model: 'invalid_model',
  content_filter: 'content_policy',
  content_policy_violation: 'content_policy',
  invalid_api_key: 'authentication',
  server_error: 'server',
  overloaded_error: 'server',
};

const QUOTA_WORDS = /quota|billing|credit balance|insufficient (funds|credits)/i;
const CONTEXT_WORDS = /context (length|window)|maximum context|too many tokens|prompt is too long/i;
const MODEL_WORDS = /model\b.*(does not exist|not found|not supported|unknown)|(unknown|invalid) model/i;

/**
 * What went wrong with a call, for the resilience ladder. The provider's code outranks the status, that the wording.
 * @param secrets texts that must not appear in the message
 */
export function classifyError(error: unknown, secrets: readonly string[]): ModelFailure {
  if (error instanceof ModelFailure) return error;
  if (error instanceof OpenAI.APIConnectionTimeoutError)
    return new ModelFailure('timeout', 'the model provider did not answer in time', undefined, { cause: error });
  if (error instanceof OpenAI.APIConnectionError)
    return failure('connection', `the model provider can't be reached${causeOf(error)}`, error, secrets);
  if (error instanceof OpenAI.APIError) return ofResponse(error, secrets);
  if (error instanceof TypeError || isSocketError(error))
    return failure('connection', `the model stream was cut${causeOf(error)}`, error, secrets);
  if (error instanceof SyntaxError) return failure('server', 'the model provider sent malformed data', error, secrets);
  const words = error instanceof Error ? error.message : String(error);
  return failure('unknown', `the model call failed: ${words}`, error, secrets);
}

function ofResponse(error: InstanceType<typeof OpenAI.APIError>, secrets: readonly string[]): ModelFailure {
  const kind = kindOf(error);
  const status = error.status === undefined ? 'in the stream' : `HTTP ${error.status}`;
  const code = error.code ? `, ${error.code}` : '';
  // What a provider says about a key repeats a part of it.
  const detail = kind === 'authentication' ? ': check the API key' : `: ${wordsOf(error)}`;
  const message = `the model provider refused the call (${status}${code})${detail}`;
  return failure(kind, message, error, secrets, retryAfterMs(error.headers));
}

function kindOf(error: InstanceType<typeof OpenAI.APIError>): ModelFailureKind {
  const words = wordsOf(error);
  const known = BY_CODE[error.code ?? ''] ?? BY_CODE[error.type ?? ''];
  if (known) return known;
  switch (error.status) {
    case undefined:
      return 'server';
    case 401:
      return 'authentication';
    case 402:
      return 'quota';
    case 403:
      return 'permission';
    case 404:
      return MODEL_WORDS.test(words) ? 'invalid_model' : 'bad_request';
    case 408:
      return 'timeout';
    case 413:
      return 'context_window';
    case 429:
      return QUOTA_WORDS.test(words) ? 'quota' : 'rate_limit';
    default:
      return error.status === 409 || error.status >= 500 ? 'server' : ofWords(words);
  }
}

function ofWords(words: string): ModelFailureKind {
  if (CONTEXT_WORDS.test(words)) return 'context_window';
  if (QUOTA_WORDS.test(words)) return 'quota';
  return MODEL_WORDS.test(words) ? 'invalid_model' : 'bad_request';
}

function wordsOf(error: InstanceType<typeof OpenAI.APIError>): string {
  const body = error.error as { message?: unknown } | undefined;
  return typeof body?.message === 'string' ? body.message : error.message;
}

function retryAfterMs(headers: Headers | undefined): number | undefined {
  const inMs = Number(headers?.get('retry-after-ms') ?? NaN);
  if (inMs >= 0) return inMs;
  const value = headers?.get('retry-after');
  if (!value) return undefined;
  const seconds = Number(value);
  if (seconds >= 0) return seconds * 1000;
  const at = Date.parse(value);
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}

function failure(
  kind: ModelFailureKind,
  message: string,
  cause: unknown,
  secrets: readonly string[],
  retryAfter?: number,
): ModelFailure {
  return new ModelFailure(kind, withoutSecrets(message, secrets), retryAfter, { cause });
}

function withoutSecrets(text: string, secrets: readonly string[]): string {
  const clean = secrets
    .filter((secret) => secret.length >= 4)
    .reduce((all, secret) => all.replaceAll(secret, '[key]'), text)
    .replace(/\b(sk|pk|key)-[\w*.-]{4,}/gi, '[key]')
    .replace(/Bearer\s+\S+/gi, 'Bearer [key]');
  return clean.length <= DETAIL_MAX_CHARS * 2 ? clean : `${clean.slice(0, DETAIL_MAX_CHARS * 2 - 1)}…`;
}

function causeOf(error: unknown): string {
  const code = codeOf(error) ?? codeOf((error as { cause?: unknown }).cause);
  return code ? ` (${code})` : '';
}

function codeOf(error: unknown): string | undefined {
  const { code, cause } = (error ?? {}) as { code?: unknown; cause?: unknown };
  if (typeof code === 'string') return code;
  return cause ? codeOf(cause) : undefined;
}

function isSocketError(error: unknown): boolean {
  return /^(ECONN|EPIPE|ETIMEDOUT|EAI_|ENOTFOUND|UND_ERR)/.test(codeOf(error) ?? '');
}

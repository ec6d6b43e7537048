import { errorOf, UnavailableError, type ErrorCode, type HttpFacts, type MargayError } from '@margay/errors';

/** Status → code and the reason where the answer names none. */
const BY_STATUS: Record<number, readonly [ErrorCode, string]> = {
  400: ['INVALID_ARGUMENT', 'bad_request'],
  401: ['UNAUTHENTICATED', 'unauthenticated'],
  403: ['PERMISSION_DENIED', 'permission_denied'],
  404: ['NOT_FOUND', 'not_found'],
  408: ['DEADLINE_EXCEEDED', 'timeout'],
  409: ['FAILED_PRECONDITION', 'conflict'],
  410: ['FAILED_PRECONDITION', 'gone'],
  412: ['FAILED_PRECONDITION', 'precondition_failed'],
  413: ['INVALID_ARGUMENT', 'too_large'],
  415: ['INVALID_ARGUMENT', 'unsupported_media_type'],
  422: ['INVALID_ARGUMENT', 'validation'],
  429: ['RESOURCE_EXHAUSTED', 'rate_limited'],
  499: ['CANCELLED', 'cancelled'],
  501: ['UNIMPLEMENTED', 'unimplemented'],
  502: ['UNAVAILABLE', 'unavailable'],
  503: ['UNAVAILABLE', 'unavailable'],
  504: ['DEADLINE_EXCEEDED', 'timeout'],
};

interface Words {
  reason?: string | undefined;
  message?: string | undefined;
  details?: Record<string, unknown> | undefined;
}

const textOf = (value: unknown): string | undefined => (typeof value === 'string' && value ? value : undefined);
const recordOf = (value: unknown): Record<string, unknown> | undefined =>
  typeof value === 'object' && value !== null ? (value as Record<string, unknown>) : undefined;

/** Reads both fixed body shapes: `{message}` and `{error: {code, reason}}`, and the odd `{error: "word"}`. */
function wordsOf(body: unknown): Words {
  const fields = recordOf(body) ?? {};
  const error = recordOf(fields.error);
  if (error)
    return {
      reason: textOf(error.code),
      message: textOf(error.reason) ?? textOf(fields.message),
      details: recordOf(error.details),
    };
  const { message, error: word, ...details } = fields;
  return {
    reason: textOf(word),
    message: textOf(message) ?? textOf(word),
    details: Object.keys(details).length ? details : undefined,
  };
}

/** Milliseconds from `Retry-After`, which holds seconds or a date. */
function retryAfterMs(value: string | null, nowMs: number): number | undefined {
  if (!value) return undefined;
  const ms = /^\d+$/.test(value) ? Number(value) * 1000 : Date.parse(value) - nowMs;
  return ms >= 0 ? ms : undefined;
}

/** Builds the error of an answer that is not 2xx. Reason: header, else a string code in the body, else the status's own. */
export function answerError(response: Response, text: string, http: HttpFacts, nowMs: number): MargayError {
  const body = parsed(text);
  const words = wordsOf(body);
  const fallback = response.status < 500 ? ('INVALID_ARGUMENT' as const) : ('INTERNAL' as const);
  const [code, usual] = BY_STATUS[response.status] ?? [fallback, response.status < 500 ? 'bad_request' : 'internal'];
  const waitMs = retryAfterMs(response.headers.get('Retry-After'), nowMs);
  const requestId = response.headers.get('X-Request-Id');
  return errorOf(
    code,
    response.headers.get('X-Margay-Reason') ?? words.reason ?? usual,
    words.message ?? `${http.method} ${http.path} was answered with status ${response.status}`,
    {
      http: { ...http, status: response.status, body, ...(requestId ? { requestId } : {}) },
      ...(words.details ? { details: words.details } : {}),
      ...(waitMs === undefined ? {} : { retryAfterMs: waitMs }),
    },
  );
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text; // a proxy's page, kept as it is
  }
}

const SOCKET_WORDS: Record<string, string> = {
  ECONNREFUSED: 'connection refused',
  ECONNRESET: 'connection reset',
  UND_ERR_SOCKET: 'connection closed',
  ENOTFOUND: 'unknown host',
  EAI_AGAIN: 'the host name cannot be resolved now',
  ETIMEDOUT: 'connection timed out',
  UND_ERR_CONNECT_TIMEOUT: 'connection timed out',
};

/** No answer, or one that broke off: `UNAVAILABLE`, reason `network`. */
export function networkError(baseUrl: string, http: HttpFacts, cause: unknown): MargayError {
  const { cause: inner, message = 'network failure' } = (recordOf(cause) ?? {}) as {
    cause?: unknown;
    message?: string;
  };
  const { code, message: detail } = (recordOf(inner) ?? {}) as { code?: string; message?: string };
  const why = (code && SOCKET_WORDS[code]) || detail || message;
  return new UnavailableError('network', `cannot reach ${baseUrl}: ${why}`, { cause, http });
}

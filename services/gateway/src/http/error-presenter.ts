import { errorOf, InternalError, isMargayError, type MargayError } from '@margay/errors';
import type { ErrorShape, Operation } from './operation';

export interface ErrorContext {
  operation: Operation | undefined;
  requestId: string;
  /** As it stands in the path. */
  sessionId?: string | undefined;
}

export interface PresentedError {
  status: number;
  headers: Record<string, string>;
  body: unknown;
}

/** Clients recognise it by value and type of each field. */
const TERMINATED = {
  error: { code: 'session_terminated', reason: 'Session is permanently terminated', retryable: false },
};

/** Sentences that clients compare, whoever found the fact out: the first, where it is not one of the others. */
const SENTENCES: Record<string, string[]> = {
  session_running: ['Session is already running.', 'Cannot fork a running session.'],
};

const UNKNOWN_SESSION = 'Session not found.';

/** Reasons whose envelope the reference fixes: an integer code, nothing beside it. */
const REFERENCE_ENVELOPES = new Set([
  ...['session_not_found', 'models_not_ready', 'streams_exhausted', 'cwd_forbidden', 'cwd_invalid', 'not_found'],
]);

/** Statuses that Margay adds to reference routes: always envelopes. */
const ENVELOPE_STATUSES = new Set([403, 429, 503, 504]);

const RETRY_AFTER_STATUSES = new Set([429, 503]);

/** The one place that knows how errors look on the public API. */
export function presentError(thrown: unknown, context: ErrorContext): PresentedError {
  const error = publicError(thrown, context);
  const status = error.httpStatus;
  const headers: Record<string, string> = { 'x-margay-reason': error.reason };
  if (RETRY_AFTER_STATUSES.has(status))
    headers['retry-after'] = String(Math.max(1, Math.ceil((error.retryAfterMs ?? 0) / 1_000)));
  if (status === 416) headers['content-range'] = `bytes */${String(error.details?.['total_bytes'] ?? '*')}`;
  return { status, headers, body: bodyOf(error, status, context) };
}

const ID_SHOWN_CHARS = 64;

/** What the caller may know of it: nothing of faults of ours. */
function publicError(thrown: unknown, { requestId, sessionId }: ErrorContext): MargayError {
  if (!isMargayError(thrown) || isOurFault(thrown))
    return new InternalError('internal', `an internal error happened; the log has it under request ${requestId}`);
  // Unknown, foreign and private ids must not be told apart.
  const isUnknown = thrown.reason === 'session_not_found' && sessionId !== undefined;
  const sentence = isUnknown ? `session ${sessionId.slice(0, ID_SHOWN_CHARS)} not found` : knownSentence(thrown);
  return sentence === undefined ? thrown : errorOf(thrown.code, thrown.reason, sentence);
}

function knownSentence({ reason, message }: MargayError): string | undefined {
  const known = SENTENCES[reason];
  return known?.includes(message) ? message : known?.[0];
}

/** A service that does not accept the principal we signed is no fault of the caller. */
export function isOurFault(error: MargayError): boolean {
  return error.code === 'INTERNAL' || (error.code === 'UNAUTHENTICATED' && error.reason !== 'unauthenticated');
}

function bodyOf(error: MargayError, status: number, context: ErrorContext): unknown {
  const { reason, message, retryable, details } = error;
  if (reason === 'session_terminated') return TERMINATED;
  if (reason === 'session_not_found' && context.operation?.hasPlainNotFound === true)
    return { message: UNKNOWN_SESSION };
  if (reason === 'ambiguous_project') return { message, candidates: details?.['candidates'] ?? [] };
  if (status === 401 || shapeOf(reason, status, context.operation) === 'message') return { message };
  const isReference = context.operation?.family !== 'margay';
  const isExtended = ENVELOPE_STATUSES.has(status) && !REFERENCE_ENVELOPES.has(reason);
  if (isReference && !isExtended) return { error: { code: status, reason: message, retryable } };
  const { requestId } = context;
  const extras = details === undefined ? {} : { details };
  return { error: { code: reason, status, reason: message, retryable, request_id: requestId, ...extras }, message };
}

function shapeOf(reason: string, status: number, operation: Operation | undefined): ErrorShape {
  if (REFERENCE_ENVELOPES.has(reason) || ENVELOPE_STATUSES.has(status)) return 'envelope';
  return operation?.errors ?? 'envelope';
}

import { CODES, httpStatus, type ErrorCode } from './codes';

const BRAND = Symbol.for('margay.error');

/** What an HTTP client knows of the exchange that failed; set by `@margay/client` only. */
export interface HttpFacts {
  method: string;
  /** Without the query string. */
  path: string;
  /** Absent where no answer came. */
  status?: number;
  requestId?: string;
  /** The answer's body, parsed if it was JSON. */
  body?: unknown;
}

export interface ErrorOptions {
  cause?: unknown;
  http?: HttpFacts;
  /** Open facts for the caller, e.g. `{ errors: [{ loc, msg, type }] }`; never secrets. */
  details?: Record<string, unknown>;
  retryAfterMs?: number;
}

/**
 * An error with a canonical code, a stable machine word and a message that says what failed, for which id, what to try.
 * Told apart by symbol, so copies of this package recognise each other's errors.
 */
export class MargayError extends Error {
  readonly [BRAND] = true;
  readonly details?: Record<string, unknown>;
  readonly retryAfterMs?: number;
  readonly http?: HttpFacts;

  constructor(
    readonly code: ErrorCode,
    /** Stable snake_case word for machines. */
    readonly reason: string,
    message: string,
    options: ErrorOptions = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.name = new.target.name;
    if (options.details) this.details = options.details;
    if (options.retryAfterMs !== undefined) this.retryAfterMs = options.retryAfterMs;
    if (options.http) this.http = options.http;
  }

  get retryable(): boolean {
    return CODES[this.code].retryable;
  }

  get httpStatus(): number {
    return httpStatus(this.code, this.reason);
  }
}

export function isMargayError(value: unknown): value is MargayError {
  return typeof value === 'object' && value !== null && (value as Record<symbol, unknown>)[BRAND] === true;
}

type Subclass = new (reason: string, message: string, options?: ErrorOptions) => MargayError;

function subclass(code: ErrorCode, name: string): Subclass {
  const type = class extends MargayError {
    constructor(reason: string, message: string, options?: ErrorOptions) {
      super(code, reason, message, options);
    }
  };
  Object.defineProperty(type, 'name', { value: name });
  return type;
}

export const InvalidArgumentError = subclass('INVALID_ARGUMENT', 'InvalidArgumentError');
export const UnauthenticatedError = subclass('UNAUTHENTICATED', 'UnauthenticatedError');
export const PermissionDeniedError = subclass('PERMISSION_DENIED', 'PermissionDeniedError');
export const NotFoundError = subclass('NOT_FOUND', 'NotFoundError');
export const AlreadyExistsError = subclass('ALREADY_EXISTS', 'AlreadyExistsError');
export const AbortedError = subclass('ABORTED', 'AbortedError');
export const FailedPreconditionError = subclass('FAILED_PRECONDITION', 'FailedPreconditionError');
export const ResourceExhaustedError = subclass('RESOURCE_EXHAUSTED', 'ResourceExhaustedError');
export const CancelledError = subclass('CANCELLED', 'CancelledError');
export const InternalError = subclass('INTERNAL', 'InternalError');
export const UnimplementedError = subclass('UNIMPLEMENTED', 'UnimplementedError');
export const UnavailableError = subclass('UNAVAILABLE', 'UnavailableError');
export const DeadlineExceededError = subclass('DEADLINE_EXCEEDED', 'DeadlineExceededError');

const SUBCLASSES: Record<ErrorCode, Subclass> = {
  INVALID_ARGUMENT: InvalidArgumentError,
  UNAUTHENTICATED: UnauthenticatedError,
  PERMISSION_DENIED: PermissionDeniedError,
  NOT_FOUND: NotFoundError,
  ALREADY_EXISTS: AlreadyExistsError,
  ABORTED: AbortedError,
  FAILED_PRECONDITION: FailedPreconditionError,
  RESOURCE_EXHAUSTED: ResourceExhaustedError,
  CANCELLED: CancelledError,
  INTERNAL: InternalError,
  UNIMPLEMENTED: UnimplementedError,
  UNAVAILABLE: UnavailableError,
  DEADLINE_EXCEEDED: DeadlineExceededError,
};

/** Builds the subclass of a code that is known only at run time, e.g. from a gRPC status. */
export function errorOf(code: ErrorCode, reason: string, message: string, options?: ErrorOptions): MargayError {
  return new SUBCLASSES[code](reason, message, options);
}

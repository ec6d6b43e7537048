/** gRPC canonical status names that Margay uses. */
export type ErrorCode =
  | 'INVALID_ARGUMENT'
  | 'UNAUTHENTICATED'
  | 'PERMISSION_DENIED'
  | 'NOT_FOUND'
  | 'ALREADY_EXISTS'
  | 'ABORTED'
  | 'FAILED_PRECONDITION'
  | 'RESOURCE_EXHAUSTED'
  | 'CANCELLED'
  | 'INTERNAL'
  | 'UNIMPLEMENTED'
  | 'UNAVAILABLE'
  | 'DEADLINE_EXCEEDED';

export interface CodeFacts {
  /** HTTP status of the public gateway. */
  http: number;
  /** gRPC status number. */
  grpc: number;
  /** Whether the same request may succeed later without being changed. */
  retryable: boolean;
  /** Level at which a service logs it. */
  log: 'debug' | 'info' | 'warn' | 'error';
}

/** The one table from codes to their meaning on each transport. */
export const CODES: Record<ErrorCode, CodeFacts> = {
  INVALID_ARGUMENT: { http: 400, grpc: 3, retryable: false, log: 'debug' },
  UNAUTHENTICATED: { http: 401, grpc: 16, retryable: false, log: 'info' },
  PERMISSION_DENIED: { http: 403, grpc: 7, retryable: false, log: 'info' },
  NOT_FOUND: { http: 404, grpc: 5, retryable: false, log: 'debug' },
  ALREADY_EXISTS: { http: 409, grpc: 6, retryable: false, log: 'debug' },
  ABORTED: { http: 409, grpc: 10, retryable: false, log: 'debug' },
  FAILED_PRECONDITION: { http: 409, grpc: 9, retryable: false, log: 'debug' },
  RESOURCE_EXHAUSTED: { http: 429, grpc: 8, retryable: true, log: 'info' },
  CANCELLED: { http: 499, grpc: 1, retryable: false, log: 'debug' },
  INTERNAL: { http: 500, grpc: 13, retryable: false, log: 'error' },
  UNIMPLEMENTED: { http: 501, grpc: 12, retryable: false, log: 'warn' },
  UNAVAILABLE: { http: 503, grpc: 14, retryable: true, log: 'warn' },
  DEADLINE_EXCEEDED: { http: 504, grpc: 4, retryable: true, log: 'warn' },
};

/** HTTP statuses that a reason overrides. */
const HTTP_BY_REASON: Record<string, number> = {
  session_terminated: 410,
  rev_moved: 412,
  too_large: 413,
  unsupported_media_type: 415,
  range_not_satisfiable: 416,
  validation: 422,
};

export function httpStatus(code: ErrorCode, reason: string): number {
  return HTTP_BY_REASON[reason] ?? CODES[code].http;
}

const BY_GRPC = new Map(Object.entries(CODES).map(([code, facts]) => [facts.grpc, code as ErrorCode]));

/** The code of a gRPC status number; INTERNAL for numbers Margay never sends. */
export function codeFromGrpc(status: number): ErrorCode {
  return BY_GRPC.get(status) ?? 'INTERNAL';
}

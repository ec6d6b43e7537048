import { Metadata, status as GrpcStatus, type ServiceError } from '@grpc/grpc-js';
import { METADATA } from '@margay/contracts';
import {
  CancelledError,
  CODES,
  codeFromGrpc,
  errorOf,
  isMargayError,
  type ErrorCode,
  type MargayError,
} from '@margay/errors';

const MAX_MESSAGE = 4_000;
const MAX_DETAILS_BYTES = 16_000;

/** The status a client sees. An error that is not ours becomes INTERNAL `internal` and tells nothing but the request id. */
export function toServiceError(error: unknown, requestId: string): ServiceError {
  const known = isMargayError(error)
    ? error
    : errorOf('INTERNAL', 'internal', `An internal error happened; the log has it under request ${requestId}.`);
  const metadata = new Metadata();
  metadata.set(METADATA.reason, known.reason);
  metadata.set(METADATA.requestId, requestId);
  if (known.retryAfterMs !== undefined) metadata.set(METADATA.retryAfterMs, String(Math.ceil(known.retryAfterMs)));
  const details = encodeDetails(known.details);
  if (details) metadata.set(METADATA.details, details);
  const text = known.message.slice(0, MAX_MESSAGE).toWellFormed();
  return Object.assign(new Error(text), { code: CODES[known.code].grpc, details: text, metadata });
}

function encodeDetails(details: Record<string, unknown> | undefined): Buffer | undefined {
  if (!details) return undefined;
  const bytes = Buffer.from(JSON.stringify(details));
  return bytes.length <= MAX_DETAILS_BYTES ? bytes : Buffer.from('{"truncated":true}');
}

/** The error a server threw, rebuilt; transport failures get a reason of their own. */
export function fromServiceError(error: unknown, target: string, signal?: AbortSignal): unknown {
  if (!isServiceError(error)) return error;
  if (signal?.aborted)
    return new CancelledError('cancelled', `The call of ${target} was cancelled.`, { cause: signal.reason });
  const reason = textOf(error.metadata, METADATA.reason);
  if (reason === undefined) return transportError(error, target);
  const details = decodeDetails(error.metadata);
  const retryAfter = textOf(error.metadata, METADATA.retryAfterMs);
  return errorOf(codeFromGrpc(error.code), reason, error.details, {
    ...(details && { details }),
    ...(retryAfter !== undefined && { retryAfterMs: Number(retryAfter) }),
  });
}

/** What grpc-js itself reports, e.g. for a server that was killed, in terms a caller can act on. */
function transportError(error: ServiceError, target: string): MargayError {
  const code = transportCode(error);
  const [reason, sentence] = TRANSPORT[code] ?? ['transport', 'failed in transport'];
  return errorOf(code, reason, `${target} ${sentence} (${error.details}).`, { cause: error });
}

const TRANSPORT: Partial<Record<ErrorCode, [reason: string, sentence: string]>> = {
  UNAVAILABLE: ['unavailable', 'cannot be reached or was cut off; try again shortly'],
  DEADLINE_EXCEEDED: ['deadline_exceeded', 'did not answer in time'],
  CANCELLED: ['cancelled', 'was cancelled'],
  UNIMPLEMENTED: ['unimplemented', 'is not offered there; that service may be of an older version'],
  INVALID_ARGUMENT: ['too_large', 'was given or gave a message above the size limit'],
};

function transportCode({ code, details }: ServiceError): ErrorCode {
  // Only our own cancellation says this; a server that closes or dies resets its streams with the same status.
  if (code === GrpcStatus.CANCELLED && details !== 'Cancelled on client') return 'UNAVAILABLE';
  if (code === GrpcStatus.INTERNAL && details.startsWith('Received RST_STREAM')) return 'UNAVAILABLE';
  if (code === GrpcStatus.RESOURCE_EXHAUSTED && details.includes('larger than')) return 'INVALID_ARGUMENT';
  return codeFromGrpc(code);
}

function decodeDetails(metadata: Metadata): Record<string, unknown> | undefined {
  const [bytes] = metadata.get(METADATA.details);
  if (!Buffer.isBuffer(bytes)) return undefined;
  try {
    return JSON.parse(bytes.toString('utf8')) as Record<string, unknown>;
  } catch {
    return undefined; // details are a courtesy: without them the error is still whole
  }
}

export function textOf(metadata: Metadata, key: string): string | undefined {
  const [value] = metadata.get(key);
  return typeof value === 'string' && value !== '' ? value : undefined;
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && 'metadata' in error && error.metadata instanceof Metadata && 'details' in error;
}

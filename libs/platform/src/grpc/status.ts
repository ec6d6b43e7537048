import { Metadata, type ServiceError } from '@grpc/grpc-js';
import { METADATA } from '@margay/contracts';
import { CancelledError, CODES, codeFromGrpc, errorOf, isMargayError, type MargayError } from '@margay/errors';

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
  const code = codeFromGrpc(error.code);
  const reason = textOf(error.metadata, METADATA.reason);
  if (reason === undefined) return transportError(code, error, target);
  const details = decodeDetails(error.metadata);
  const retryAfter = textOf(error.metadata, METADATA.retryAfterMs);
  return errorOf(code, reason, error.details, {
    ...(details && { details }),
    ...(retryAfter !== undefined && { retryAfterMs: Number(retryAfter) }),
  });
}

function transportError(code: MargayError['code'], error: ServiceError, target: string): MargayError {
  const sentences: Partial<Record<MargayError['code'], [string, string]>> = {
    UNAVAILABLE: ['unavailable', `${target} cannot be reached; try again shortly`],
    DEADLINE_EXCEEDED: ['deadline_exceeded', `${target} did not answer in time`],
    CANCELLED: ['cancelled', `The call of ${target} was cancelled`],
    UNIMPLEMENTED: ['unimplemented', `${target} does not offer this method; it may be of an older version`],
  };
  const [reason, sentence] = sentences[code] ?? ['transport', `The call of ${target} failed in transport`];
  return errorOf(code, reason, `${sentence} (${error.details}).`, { cause: error });
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

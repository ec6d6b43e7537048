import { Metadata, type ServiceError } from '@grpc/grpc-js';
import { METADATA } from '@margay/contracts';
import { CODES, errorOf, isMargayError } from '@margay/errors';

/** An error as it travels: its code, and the reason in the metadata. */
export function toServiceError(error: unknown): ServiceError {
  const known = isMargayError(error)
    ? error
    : errorOf('INTERNAL', 'internal', error instanceof Error ? error.message : String(error));
  const metadata = new Metadata();
  metadata.set(METADATA.reason, known.reason);
  return Object.assign(new Error(known.message), {
    code: CODES[known.code].grpc,
    details: known.message,
    metadata,
  });
}

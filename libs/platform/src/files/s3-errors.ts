import { isMargayError, NotFoundError, UnavailableError } from '@margay/errors';

/** Whom an error speaks of. */
export interface S3Place {
  bucket: string;
  /** For people. */
  place: string;
}

interface S3Failure {
  name?: string;
  /** Of Node: why a connection failed. */
  code?: string;
  cause?: { code?: string };
  $metadata?: { httpStatusCode?: number };
}

const NO_OBJECT = new Set(['NoSuchKey', 'NotFound']);
const DENIED = new Set(['AccessDenied', 'InvalidAccessKeyId', 'SignatureDoesNotMatch', 'Forbidden']);

/** What a caller is told of a failure of S3, and an operator what to set; texts of the server are only in the cause. */
export function translateS3Error(error: unknown, key: string, at: S3Place): Error {
  if (isMargayError(error)) return error;
  const { name = '', code, cause, $metadata } = (error ?? {}) as S3Failure;
  const options = { cause: error };
  if (name === 'NoSuchBucket') {
    const fix = 'make it, or correct MARGAY_S3_BUCKET or MARGAY_S3_ENDPOINT';
    return new UnavailableError(
      'blob_bucket_missing',
      `There is no bucket ${at.bucket} at ${at.place}; ${fix}.`,
      options,
    );
  }
  if (NO_OBJECT.has(name)) return new NotFoundError('object_missing', `There is no object ${key}.`, options);
  const status = $metadata?.httpStatusCode;
  if (DENIED.has(name) || status === 401 || status === 403) {
    const fix = `check MARGAY_S3_ACCESS_KEY_ID, MARGAY_S3_SECRET_ACCESS_KEY and the rights of that key on ${at.bucket}`;
    return new UnavailableError(
      'blob_store_denied',
      `${at.place} refuses access (${name || String(status)}); ${fix}.`,
      options,
    );
  }
  const what = status === undefined ? `is not reached (${code ?? cause?.code ?? name})` : `answers ${status} ${name}`;
  const fix = 'try again; if it lasts, check MARGAY_S3_ENDPOINT, NODE_EXTRA_CA_CERTS and the network policy';
  return new UnavailableError('blob_store_unavailable', `The blob store at ${at.place} ${what}; ${fix}.`, options);
}

export function isObjectMissing(error: unknown): boolean {
  return isMargayError(error) && error.reason === 'object_missing';
}

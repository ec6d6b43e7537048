import {
  AbortedError,
  AlreadyExistsError,
  FailedPreconditionError,
  isMargayError,
  NotFoundError,
  PermissionDeniedError,
  ResourceExhaustedError,
  UnavailableError,
} from '@margay/errors';

export function isCode(error: unknown, code: number): boolean {
  return (error as { code?: unknown } | null)?.code === code;
}

/**
 * What the API server's answer means to us, in its words: `exists`, `changed`, `quota`, `cluster_rights`,
 * `cluster_refused` (the object itself is wrong, and will be next time), else UNAVAILABLE `cluster_unavailable`.
 */
export function kubernetesError(error: unknown): unknown {
  if (isMargayError(error)) return error;
  const code = (error as { code?: unknown } | null)?.code;
  const { message, reason } = statusOf(error);
  const options = { cause: error };
  if (code === 404) return new NotFoundError('not_in_cluster', message, options);
  if (code === 409 && reason === 'AlreadyExists') return new AlreadyExistsError('exists', message, options);
  if (code === 409) return new AbortedError('changed', message, options);
  if (code === 403 && /exceeded quota/.test(message)) return new ResourceExhaustedError('quota', message, options);
  if (code === 403 && /PodSecurity|admission|is forbidden: maximum/.test(message))
    return new FailedPreconditionError('cluster_refused', message, options);
  if (code === 401 || code === 403) return new PermissionDeniedError('cluster_rights', message, options);
  if (code === 400 || code === 422) return new FailedPreconditionError('cluster_refused', message, options);
  return new UnavailableError('cluster_unavailable', `The Kubernetes API did not answer: ${message}`, options);
}

function statusOf(error: unknown): { message: string; reason?: string } {
  const { body, message } = error as { body?: unknown; message?: string };
  const parsed = typeof body === 'string' ? parse(body) : body;
  const status = (parsed ?? {}) as { message?: string; reason?: string };
  return { message: status.message ?? message ?? String(error), ...(status.reason && { reason: status.reason }) };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // a proxy's page, not a status
  }
}

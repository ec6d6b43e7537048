import { UnavailableError } from '@margay/errors';

const RETRY_MS = 5_000;

/** Nobody may work there any more; a little later it begins anew. */
export function workspaceDeleting(): Error {
  return new UnavailableError('workspace_deleting', 'The files of this workspace are being deleted; try again.', {
    retryAfterMs: RETRY_MS,
  });
}

import { FailedPreconditionError, PermissionDeniedError } from '@margay/errors';
import type { Claim } from '../driver/sandbox-driver';
import { refOf } from './sandbox-ref';
import type { SandboxRow } from './sandbox-row';

const TOLD_AGAIN_MS = 50;
const TENANT_AGAIN_MS = 1_000;
const UNSAVED_AGAIN_MS = 5_000;

export function claimOf(row: SandboxRow | undefined, path: 'warm' | 'cold'): Claim | undefined {
  return row && { ref: refOf(row), path };
}

export function beingTold(of: { sandboxId?: string; state?: string } = {}): Claim {
  const message = 'the sandbox is being told whose it is';
  return { refusal: { state: 'starting', ...of, reason: 'starting', message, retryAfterMs: TOLD_AGAIN_MS } };
}

export function tenantLimit(max: number, queuePosition: number): Claim {
  const message = `the tenant has ${max} sandboxes, and all of them are in use`;
  return {
    refusal: { state: 'queued', reason: 'tenant_limit', message, queuePosition, retryAfterMs: TENANT_AGAIN_MS },
  };
}

/** Somebody else was sooner, each time. */
export function changing(): Claim {
  const message = 'the sandbox changes again and again';
  return { refusal: { state: 'starting', reason: 'starting', message, retryAfterMs: TENANT_AGAIN_MS } };
}

/** What the session had before holds files that are nowhere else. */
export function unsaved(): Claim {
  const message =
    'the files of the sandbox that the session had before cannot be saved now; it ends when they are, or go back to its project and class';
  return { refusal: { state: 'starting', reason: 'content', message, retryAfterMs: UNSAVED_AGAIN_MS } };
}

export function staleEpoch(): Error {
  return new FailedPreconditionError('stale_epoch', 'Another process owns the run now.');
}

export function bound(): Error {
  return new PermissionDeniedError('sandbox_bound', 'The sandbox of this session belongs to another tenant.');
}

export function externalPath(): Error {
  return new PermissionDeniedError(
    'external_path_refused',
    'On a cluster a session has a workspace of its own; it cannot be a folder of some machine.',
  );
}

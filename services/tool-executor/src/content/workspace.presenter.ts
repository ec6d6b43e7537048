import { isoMicros, type SandboxView, type WorkspaceView } from '@margay/contracts';
import type { KnownSandbox } from '../driver/sandbox-inventory';
import type { Retention } from './retention';
import type { StoredContent, WorkspaceDocument } from './workspace-document';

const KINDS: Record<string, WorkspaceView['kind']> = { s: 'session', p: 'project', w: 'worktree' };

/** A row as the public API shows it. */
export function presentWorkspace(row: WorkspaceDocument, retention: Retention): WorkspaceView {
  const expiry = retention.expiryOf(row);
  return {
    workspace_id: row._id,
    kind: KINDS[row.key.charAt(0)] ?? 'session',
    belongs_to: row.key.slice(2),
    owner: row.owner ?? null,
    class: row.class,
    storage: row.storage,
    state: row.state,
    content: row.content ? presentContent(row.content) : null,
    created_at: timeOf(row.createdAt),
    last_used_at: timeOf(row.lastUsedAt),
    expires_at: expiry ? timeOf(expiry) : null,
    legal_hold: row.legalHold ?? false,
    rev: row.rev,
  };
}

function presentContent({ source, upload, status, reason, message, head }: StoredContent): WorkspaceView['content'] {
  const { kind, ...asked } = source;
  const sent = upload && {
    filename: upload.filename,
    format: upload.format,
    bytes: upload.bytes,
    sha256: upload.sha256,
  };
  const told = { reason: reason ?? null, message: message ?? null, head: head ?? null };
  return { kind, source: { ...asked, ...sent }, status, ...told };
}

export function presentSandbox(sandbox: KnownSandbox): SandboxView {
  const { sandboxId, sessionId, workspaceId, driver, state, lastActiveAt, reason } = sandbox;
  return {
    sandbox_id: sandboxId,
    session_id: sessionId === '' ? null : sessionId,
    workspace_id: workspaceId ?? null,
    class: sandbox.class,
    driver,
    state,
    last_active_at: lastActiveAt ? timeOf(lastActiveAt) : null,
    reason: reason ?? null,
  };
}

function timeOf(date: Date): string {
  return isoMicros(date.getTime() * 1_000);
}

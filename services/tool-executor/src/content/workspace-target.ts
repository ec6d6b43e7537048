import { workspaceIdOf, workspaceKeyOf } from '../driver/workspace-key';
import type { SandboxWish } from '../sandbox/sandbox-registry';

/** The workspace that a wish for a sandbox is about; of a worktree, that of its project. Undefined: a folder in place. */
export function targetOf(wish: SandboxWish): { id: string; key: string } | undefined {
  const { workspace, sessionId, tenantId } = wish;
  const place = 'of' in workspace ? workspace.of : workspace;
  if (place.kind === 'path') return undefined;
  const key = workspaceKeyOf({ sessionId, workspace: place });
  return { id: workspaceIdOf(tenantId, key), key };
}

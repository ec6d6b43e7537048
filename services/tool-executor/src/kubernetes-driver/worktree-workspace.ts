import { FailedPreconditionError, PermissionDeniedError } from '@margay/errors';
import type { ClaimRequest } from '../driver/sandbox-driver';
import { workspaceIdOf, workspaceKeyOf, type ClaimWorkspace } from '../driver/workspace-key';
import type { WorkspaceRepository, WorkspaceRow } from './workspace.repository';

type Worktree = Extract<ClaimWorkspace, { kind: 'worktree' }>;

/**
 * The workspace of a worktree: a folder on the volume of its project (cluster §2.1).
 * @throws FailedPreconditionError `project_needs_volume`; PermissionDeniedError `external_path_refused`
 */
export async function worktreeWorkspace(
  workspaces: Pick<WorkspaceRepository, 'find' | 'obtain'>,
  { tenantId, sessionId }: Pick<ClaimRequest, 'tenantId' | 'sessionId'>,
  workspace: Worktree,
): Promise<WorkspaceRow> {
  if (workspace.of.kind === 'path')
    throw new PermissionDeniedError(
      'external_path_refused',
      'On a cluster a worktree lies in the workspace of its project; it cannot be in a folder of some machine.',
    );
  const parentId = workspaceIdOf(tenantId, workspaceKeyOf({ sessionId, workspace: workspace.of }));
  const parent = await workspaces.find(tenantId, parentId);
  if (!parent?.volume)
    throw new FailedPreconditionError(
      'project_needs_volume',
      'A worktree lies on the volume of its project, and this one has none; choose storage "volume" for its class.',
    );
  const { class: className, volume } = parent;
  const made = {
    class: className,
    storage: 'volume',
    parentId,
    subPath: `.margay/worktrees/${workspace.slug}`,
  } as const;
  const row = await workspaces.obtain(tenantId, workspaceKeyOf({ sessionId, workspace }), made);
  return { ...row, volume };
}

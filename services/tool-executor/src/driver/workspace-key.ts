import { createHash } from 'node:crypto';
import type { RunGrant } from '@margay/contracts';

/** Where a sandbox works: as runs are granted it, or in the own workspace of a session that has no part in it. */
export type ClaimWorkspace = RunGrant['workspace'] | { kind: 'session'; sessionId: string };

/** `s/<session>`, `p/<project>` for all sessions of it, `path/<path>` in place, `w/<project>:<folder>` (cluster §2.1). */
export function workspaceKeyOf({ sessionId, workspace }: { sessionId: string; workspace: ClaimWorkspace }): string {
  switch (workspace.kind) {
    case 'own':
      return `s/${sessionId}`;
    case 'session':
      return `s/${workspace.sessionId}`;
    case 'project':
      return `p/${workspace.projectId}`;
    case 'path':
      return `path/${workspace.path}`;
    case 'worktree':
      return `w/${workspace.of.kind === 'project' ? workspace.of.projectId : workspace.of.path}:${workspace.slug}`;
  }
}

/** 32 hex digits. The id follows from the key, so everybody makes the same one. */
export function workspaceIdOf(tenantId: string, key: string): string {
  return createHash('sha256').update(`${tenantId}\0${key}`).digest('hex').slice(0, 32);
}

/** Work without a session leaves its sandbox to others for so long. */
export const UTILITY_IDLE_MS = 60_000;

const UTILITY = /^u([0-9a-f]{32})$/;

/** Stands in for a session where there is none: no session has such an id. */
export const utilitySessionOf = (workspaceId: string): string => `u${workspaceId}`;

/** The workspace that a utility sandbox is for; undefined for those of sessions. */
export const utilityWorkspaceOf = (sessionId: string): string | undefined => UTILITY.exec(sessionId)?.[1];

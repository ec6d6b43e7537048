import type { IndexContent, WorkspaceIndexDocument } from './index-store';

/** For specs: of a repository with nothing in it. */
export const EMPTY_CONTENT: IndexContent = {
  ...{ files: [], isGit: true, head: '', truncated: false, branches: [], currentBranch: '', branchesInUse: [] },
  ...{ defaultBranch: '', worktrees: [], remoteHost: '', remoteOwner: '', remoteName: '', instructions: [] },
  ...{ skills: [], agents: [], policies: [], monitors: [], mcpHash: '', mcpServers: [] },
};

export const PLACE = { tenantId: 't1', workspaceId: 'a'.repeat(32) };

export function indexDocument(files: readonly string[], revision: number): WorkspaceIndexDocument {
  const { files: _, ...content } = EMPTY_CONTENT;
  return { ...PLACE, revision, atMs: revision, content, files };
}

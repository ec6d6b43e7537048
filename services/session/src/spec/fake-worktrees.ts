import type { executorPb } from '@margay/contracts';
import { AbortedError, FailedPreconditionError, UnavailableError } from '@margay/errors';

const HEAD = 'c'.repeat(40);

/** Git in a sandbox, as far as session hears of it. */
export class FakeWorktrees {
  worktrees: executorPb.Worktree[] = [];
  readonly added: executorPb.AddWorktreeRequest[] = [];
  readonly removed: executorPb.RemoveWorktreeRequest[] = [];
  /** Folders with changes that are nowhere else. */
  readonly dirty = new Set<string>();
  /** No sandbox can be had. */
  isAway = false;
  /** What indexes say, by what a workspace holds. */
  readonly remotes = new Map<string, [host: string, owner: string, name: string]>();

  async add(request: executorPb.AddWorktreeRequest): Promise<executorPb.AddWorktreeResponse> {
    this.added.push(request);
    this.refuseAway();
    const { slug, branch } = request;
    const known = this.worktrees.find((worktree) => worktree.slug === slug);
    if (known) return { worktree: known, created: false };
    if (branch === 'main') throw new AbortedError('branch_in_use', 'main is checked out already');
    const worktree = { slug, path: `/workspace/.margay/worktrees/${slug}`, branch, head: HEAD, clean: true };
    this.worktrees.push(worktree);
    return { worktree, created: true };
  }

  async remove(request: executorPb.RemoveWorktreeRequest): Promise<executorPb.RemoveWorktreeResponse> {
    this.removed.push(request);
    this.refuseAway();
    const { slug, force } = request;
    if (this.dirty.has(slug) && !force) throw new FailedPreconditionError('worktree_dirty', `${slug} has changes`);
    const before = this.worktrees.length;
    this.worktrees = this.worktrees.filter((worktree) => worktree.slug !== slug);
    return { removed: this.worktrees.length < before };
  }

  describe(workspaceJson: string): executorPb.WorkspaceDescription {
    const [, remote] = [...this.remotes].find(([part]) => workspaceJson.includes(part)) ?? [];
    const [remoteHost = '', remoteOwner = '', remoteName = ''] = remote ?? [];
    return { isKnown: true, isGit: true, currentBranch: 'main', remoteHost, remoteOwner, remoteName };
  }

  private refuseAway(): void {
    if (this.isAway) throw new UnavailableError('workspace_starting', 'The workspace is being opened.');
  }
}

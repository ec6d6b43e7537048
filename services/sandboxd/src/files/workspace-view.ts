import type { sandboxdPb } from '@margay/contracts';
import type { GitPlace } from '../git/git';
import { Worktrees } from '../git/worktrees';
import { IndexWatch } from './index-watch';
import { listFiles } from './list-files';

/** Paths of a workspace that are listed at most (cluster §2.4). */
const FILES_MAX = 50_000;

/** What lies in the workspace, and whether that may have changed. */
export class WorkspaceView {
  private changes = 0;
  /** Git at work on it. */
  private working = 0;
  private readonly worktrees: Worktrees;
  private readonly index: IndexWatch;

  /** @param isCalled whether calls run, which may change files at any time */
  constructor(
    private readonly place: GitPlace,
    private readonly isCalled: () => boolean,
  ) {
    this.worktrees = new Worktrees(place);
    this.index = new IndexWatch({
      look: () => this.list(FILES_MAX),
      changes: () => (this.isCalled() ? (this.changes += 1) : this.changes),
      now: () => performance.now(),
    });
  }

  get isWorking(): boolean {
    return this.working > 0;
  }

  /** Something may have changed files. */
  mayHaveChanged(): void {
    this.changes += 1;
  }

  list(limit: number): Promise<sandboxdPb.ListFilesResponse> {
    return listFiles({ ...this.place, limit: Math.min(limit || FILES_MAX, FILES_MAX) });
  }

  watch(signal: AbortSignal): AsyncIterable<sandboxdPb.WatchIndexResponse> {
    return this.index.watch(signal);
  }

  addWorktree(request: sandboxdPb.AddWorktreeRequest): Promise<sandboxdPb.AddWorktreeResponse> {
    return this.changing(() => this.worktrees.add(request));
  }

  removeWorktree(request: sandboxdPb.RemoveWorktreeRequest): Promise<sandboxdPb.RemoveWorktreeResponse> {
    return this.changing(() => this.worktrees.remove(request));
  }

  private async changing<T>(work: () => Promise<T>): Promise<T> {
    this.working += 1;
    try {
      return await work();
    } finally {
      this.working -= 1;
      this.changes += 1;
    }
  }
}

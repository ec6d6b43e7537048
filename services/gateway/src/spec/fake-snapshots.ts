import type { SnapshotView, snapshotsPb } from '@margay/contracts';
import { FailedPreconditionError, NotFoundError } from '@margay/errors';
import type { GrpcHandlers } from '@margay/platform';

/** The archives that tool-executor would keep of one workspace: two. */
export class FakeSnapshots {
  readonly asked: { method: string; request: object }[] = [];
  /** A session works there. */
  isInUse = false;

  constructor(private readonly workspaceId: string) {}

  handlers(): GrpcHandlers<snapshotsPb.SnapshotsDefinition> {
    return {
      listSnapshots: async (request) => {
        this.note('list', request);
        return { snapshotsJson: [2, 1].map((n) => JSON.stringify(this.view(n))) };
      },
      takeSnapshot: async (request) => {
        this.note('take', request);
        return { snapshotJson: JSON.stringify(this.view(2)) };
      },
      restoreSnapshot: async (request) => {
        this.note('restore', request);
        if (this.isInUse) throw new FailedPreconditionError('workspace_in_use', 'A session works there.');
        return { snapshotJson: JSON.stringify(this.view(request.n ?? 2)) };
      },
      relocate: async (request) => {
        this.note('relocate', request);
        return { snapshotJson: JSON.stringify(this.view(2)) };
      },
      forkWorkspace: () => Promise.reject(new Error('not part of these specs')),
    };
  }

  private note(method: string, request: { workspaceId: string }): void {
    this.asked.push({ method, request });
    if (request.workspaceId !== this.workspaceId)
      throw new NotFoundError('workspace_not_found', `workspace ${request.workspaceId.slice(0, 64)} not found`);
  }

  private view(n: number): SnapshotView {
    return {
      snapshot_id: `${this.workspaceId}/${n}`,
      n,
      kind: n === 1 ? 'full' : 'delta',
      created_at: '2026-01-01T00:00:00.000Z',
      bytes: 1_024,
      entries: 12,
      sha256: 'a'.repeat(64),
    };
  }
}

import type { Principal, SnapshotView, snapshotsPb } from '@margay/contracts';
import { PermissionDeniedError, UnimplementedError } from '@margay/errors';
import type { CallContext, GrpcHandlers } from '@margay/platform';
import { kindOf, type Archive } from './archive-store';
import type { WorkspaceSnapshots } from './workspace-snapshots';

/** People come by the gateway, as themselves. */
export class SnapshotsGrpc implements GrpcHandlers<snapshotsPb.SnapshotsDefinition> {
  constructor(private readonly opened: WorkspaceSnapshots | undefined) {}

  async listSnapshots(
    { workspaceId }: snapshotsPb.ListSnapshotsRequest,
    context: CallContext,
  ): Promise<snapshotsPb.ListSnapshotsResponse> {
    return { snapshotsJson: (await this.snapshots.list(callerOf(context), workspaceId)).map(shown) };
  }

  async takeSnapshot(
    { workspaceId }: snapshotsPb.TakeSnapshotRequest,
    context: CallContext,
  ): Promise<snapshotsPb.TakeSnapshotResponse> {
    return { snapshotJson: shown(await this.snapshots.take(callerOf(context), workspaceId)) };
  }

  async restoreSnapshot(
    { workspaceId, n }: snapshotsPb.RestoreSnapshotRequest,
    context: CallContext,
  ): Promise<snapshotsPb.RestoreSnapshotResponse> {
    return { snapshotJson: shown(await this.snapshots.restore(callerOf(context), workspaceId, n)) };
  }

  async relocate(
    { workspaceId }: snapshotsPb.RelocateRequest,
    context: CallContext,
  ): Promise<snapshotsPb.RelocateResponse> {
    return { snapshotJson: shown(await this.snapshots.relocate(callerOf(context), workspaceId)) };
  }

  async forkWorkspace(
    { fromSessionId: from, toSessionId: to, owner }: snapshotsPb.ForkWorkspaceRequest,
    context: CallContext,
  ): Promise<snapshotsPb.ForkWorkspaceResponse> {
    const { iss, tenantId } = context.principal();
    if (iss !== 'session') throw new PermissionDeniedError('session_only', 'Only session says what is forked.');
    return { workspaceId: await this.snapshots.fork(tenantId, { from, to, owner }) };
  }

  private get snapshots(): WorkspaceSnapshots {
    if (this.opened) return this.opened;
    throw new UnimplementedError(
      'workspaces_unavailable',
      'This tool-executor keeps no records of workspaces; give it MARGAY_MONGODB_URL.',
    );
  }
}

function shown(archive: Archive): string {
  const { workspaceId, n, at, bytes, entries, sha256 } = archive;
  const view: SnapshotView = {
    snapshot_id: `${workspaceId}/${n}`,
    n,
    kind: kindOf(archive),
    created_at: at.toISOString(),
    bytes,
    entries,
    sha256,
  };
  return JSON.stringify(view);
}

function callerOf(context: CallContext): Principal {
  const principal = context.principal();
  if (principal.iss === 'gateway' || principal.iss === 'session') return principal;
  throw new PermissionDeniedError('gateway_only', 'Snapshots are shown to people, by the gateway.');
}

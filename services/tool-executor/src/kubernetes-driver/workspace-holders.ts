import type { Collection } from 'mongodb';
import { translateStoreError } from '@margay/platform';
import { snapshotOf, type Archive } from '../snapshots/archive-store';
import type { SandboxRow } from './sandbox-row';
import type { WorkspaceHolder, WorkspaceRow } from './workspace.repository';

/** Who has the files of a workspace that are not on a volume: one sandbox at a time (cluster §2.2). */
export class WorkspaceHolders {
  constructor(private readonly rows: Collection<WorkspaceRow>) {}

  /** @param wasLost the one before it took files with it. @returns whether the files are this sandbox's from now on */
  async take({ _id, tenantId, holder: before }: WorkspaceRow, row: SandboxRow, wasLost: boolean): Promise<boolean> {
    const holder: WorkspaceHolder = { sandboxId: row._id, sessionId: row.sessionId ?? '', wasLost };
    const asSeen = before ? { 'holder.sandboxId': before.sandboxId } : { holder: { $exists: false } };
    const { matchedCount } = await this.rows
      .updateOne({ _id, tenantId, ...asSeen }, { $set: { holder }, $inc: { rev: 1 } })
      .catch(rethrow);
    return matchedCount === 1;
  }

  /** Its files are those of the workspace now. */
  noteRestored(workspace: WorkspaceRow, sandboxId: string): Promise<boolean> {
    return this.asHolder(workspace, sandboxId, { 'holder.restoredAt': new Date(), state: 'live' });
  }

  /** Its files are on its new volume, for whoever uses that. */
  async noteAwake({ _id, tenantId }: WorkspaceRow, sandboxId: string): Promise<void> {
    const own = { _id, tenantId, 'holder.sandboxId': sandboxId };
    const change = { $set: { state: 'live' as const }, $unset: { holder: '' as const }, $inc: { rev: 1 } };
    await this.rows.updateOne(own, change).catch(rethrow);
  }

  /** @returns false: the files are another sandbox's */
  noteSnapshot(
    workspace: Pick<WorkspaceRow, '_id' | 'tenantId'>,
    sandboxId: string,
    archive: Archive,
  ): Promise<boolean> {
    return this.asHolder(workspace, sandboxId, { snapshot: snapshotOf(archive) });
  }

  /** What it began with is gone with its files: it begins anew. */
  async beginAnew({ _id, tenantId }: WorkspaceRow): Promise<void> {
    const set = { 'content.status': 'pending' };
    await this.rows
      .updateOne({ _id, tenantId, 'content.status': 'ready' } as object, { $set: set as object, $inc: { rev: 1 } })
      .catch(rethrow);
  }

  private async asHolder(
    { _id, tenantId }: Pick<WorkspaceRow, '_id' | 'tenantId'>,
    sandboxId: string,
    set: object,
  ): Promise<boolean> {
    const own = { _id, tenantId, 'holder.sandboxId': sandboxId };
    const { matchedCount } = await this.rows.updateOne(own, { $set: set, $inc: { rev: 1 } }).catch(rethrow);
    return matchedCount === 1;
  }
}

function rethrow(error: unknown): never {
  throw translateStoreError(error);
}

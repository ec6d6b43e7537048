import type { Principal } from '@margay/contracts';
import { FailedPreconditionError, UnavailableError } from '@margay/errors';
import { mayKnow, refuseHeld, requireOwner, workspaceNotFound } from '../content/workspace-access';
import { isUsable, type WorkspaceDocument } from '../content/workspace-document';
import type { WorkspaceRecords } from '../content/workspace-records';
import { contentOf } from '../content/workspaces.service';
import type { SandboxInventory } from '../driver/sandbox-inventory';
import { utilityWorkspaceOf, workspaceIdOf } from '../driver/workspace-key';
import type { UtilitySandboxes, UtilityWorkspace } from '../utility/utility-sandboxes';
import { snapshotOf, type Archive, type ArchiveOwner } from './archive-store';
import type { Snapshots } from './snapshots';

export interface WorkspaceSnapshotsPorts {
  records: WorkspaceRecords;
  snapshots: Snapshots;
  utilities: Pick<UtilitySandboxes, 'use' | 'end'>;
  inventory: Pick<SandboxInventory, 'listOn'>;
}

export interface ForkedSession {
  from: string;
  to: string;
  owner: string;
}

/** What people ask of the archives of a workspace. */
export class WorkspaceSnapshots {
  constructor(private readonly ports: WorkspaceSnapshotsPorts) {}

  /** Newest first. */
  async list(principal: Principal, id: string): Promise<Archive[]> {
    const row = await this.rowOf(principal, id);
    return (await this.ports.snapshots.list(ownerOf(row))).reverse();
  }

  /** Archives it as it is now. @returns the newest archive, an old one if nothing has changed */
  async take(principal: Principal, id: string): Promise<Archive> {
    return this.archive(await this.changeable(principal, id));
  }

  /** The same for upkeep. */
  async archive(row: WorkspaceDocument): Promise<Archive> {
    const { snapshots, utilities, records } = this.ports;
    const archive = await utilities.use(utilityOf(row), (place) => snapshots.take(ownerOf(row), place));
    const noted = await records.changeLatest(row, (latest) =>
      isUsable(latest) ? { set: { snapshot: snapshotOf(archive) } } : undefined,
    );
    if (noted) return archive;
    // It was deleted meanwhile, and its archives perhaps before this one was there.
    await snapshots.removeAll(ownerOf(row));
    throw workspaceNotFound(row._id);
  }

  /** The files are those of an archive, the newest unless named. @throws FAILED_PRECONDITION `workspace_in_use` */
  async restore(principal: Principal, id: string, n: number | undefined): Promise<Archive> {
    const row = await this.changeable(principal, id);
    refuseHeld(row);
    const archive = await this.wanted(row, n);
    await this.demandUnused(row);
    const { snapshots, utilities, records } = this.ports;
    // Where the next sandbox brings the files anyway, it brings these.
    const isBrought = row.storage === 'snapshot' || row.state === 'dormant';
    if (!isBrought)
      await utilities.use(utilityOf(row), (place) =>
        snapshots.restore(ownerOf(row), place, { n: archive.n, force: true }),
      );
    await records.changeLatest(row, () => ({ set: { snapshot: snapshotOf(archive) } }));
    return archive;
  }

  /**
   * Leaves its volume where it is, and brings the newest archive to a new one with the next sandbox.
   * @throws FAILED_PRECONDITION `workspace_in_use`, `no_snapshot`
   */
  async relocate(principal: Principal, id: string): Promise<Archive> {
    const row = await this.changeable(principal, id);
    refuseHeld(row);
    if (row.storage !== 'volume' || !(row.volume || row.state === 'dormant'))
      throw new FailedPreconditionError('nothing_to_relocate', 'The workspace has no volume that could be elsewhere.');
    const archive = await this.wanted(row, undefined);
    await this.demandUnused(row);
    await this.putToSleep(row, archive);
    return archive;
  }

  /** From now on its files are in that archive, and nowhere else. @returns false: somebody came meanwhile */
  async putToSleep(row: WorkspaceDocument, archive: Archive): Promise<boolean> {
    const { volume, lastUsedAt } = row;
    const asleep = await this.ports.records.changeLatest(row, (now) => {
      const isSame = now.volume?.pvcUid === volume?.pvcUid && now.lastUsedAt.getTime() === lastUsedAt.getTime();
      if (!isSame || !isUsable(now)) return undefined;
      return { set: { state: 'dormant', snapshot: snapshotOf(archive) }, unset: ['volume'] };
    });
    return asleep !== undefined;
  }

  /**
   * The files that a session without a project has now, for its fork to begin with. The same again goes on with what is there.
   * @returns undefined where there are none
   */
  async fork(tenantId: string, { from, to, owner }: ForkedSession): Promise<string | undefined> {
    const { records, snapshots } = this.ports;
    const source = await records.find(tenantId, workspaceIdOf(tenantId, `s/${from}`));
    if (!source || !isUsable(source) || (source.content && source.content.status !== 'ready')) return undefined;
    const { class: className, storage } = source;
    const fork = await records.obtain(tenantId, `s/${to}`, {
      class: className,
      storage,
      owner,
      forkedFrom: source._id,
    });
    if (fork.content || fork.snapshot) return fork._id;
    const isAsleep = source.state === 'dormant' && source.snapshot;
    const archive = isAsleep ? await snapshots.get(ownerOf(source), isAsleep.n) : await this.archive(source);
    const copied = await snapshots.copy(ownerOf(source), archive.n, ownerOf(fork));
    if (!copied)
      throw new UnavailableError('snapshot_dropped', 'The archive was replaced while it was copied; try again.');
    // Without a volume the next sandbox brings its newest archive in any case.
    const snapshot = `${fork._id}/${copied.n}`;
    const set =
      storage === 'snapshot'
        ? { snapshot: snapshotOf(copied) }
        : { content: contentOf({ kind: 'template', snapshot }, false) };
    await records.changeLatest(fork, () => ({ set }));
    return fork._id;
  }

  private async wanted(row: WorkspaceDocument, n: number | undefined): Promise<Archive> {
    const { snapshots } = this.ports;
    if (n !== undefined) return snapshots.get(ownerOf(row), n);
    const newest = (await snapshots.list(ownerOf(row))).at(-1);
    if (newest) return newest;
    throw new FailedPreconditionError('no_snapshot', 'The workspace has no snapshot yet; take one first.');
  }

  private async demandUnused(row: WorkspaceDocument): Promise<void> {
    const living = await this.ports.inventory.listOn(row);
    if (!living.some(({ sessionId }) => utilityWorkspaceOf(sessionId) === undefined)) return;
    throw new FailedPreconditionError(
      'workspace_in_use',
      'A session works there; its files stay as they are. End its sandbox first, or wait until it is idle.',
    );
  }

  private async changeable(principal: Principal, id: string): Promise<WorkspaceDocument> {
    const row = await this.rowOf(principal, id);
    requireOwner(principal, row);
    if (row.parentId === undefined) return row;
    throw new FailedPreconditionError(
      'worktree_has_no_snapshots',
      `A worktree is a part of workspace ${row.parentId}, and is archived with it.`,
    );
  }

  private async rowOf(principal: Principal, id: string): Promise<WorkspaceDocument> {
    const row = /^[0-9a-f]{32}$/.test(id) ? await this.ports.records.find(principal.tenantId, id) : undefined;
    if (row && isUsable(row) && mayKnow(principal, row)) return row;
    throw workspaceNotFound(id);
  }
}

export function ownerOf({ tenantId, _id: workspaceId }: WorkspaceDocument): ArchiveOwner {
  return { tenantId, workspaceId };
}

/** By its key, `p/<project>` or `s/<session>`; of a fork too, which is known by nothing else. */
export function utilityOf({ tenantId, key }: Pick<WorkspaceDocument, 'tenantId' | 'key'>): UtilityWorkspace {
  const [kind, id = ''] = [key.slice(0, 1), key.slice(2)];
  if (kind === 'p') return { tenantId, workspace: { kind: 'project', projectId: id } };
  return { tenantId, workspace: { kind: 'session', sessionId: id } };
}

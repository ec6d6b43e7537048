import type { ClaimRequest } from '../driver/sandbox-driver';
import { utilityWorkspaceOf, workspaceIdOf, workspaceKeyOf } from '../driver/workspace-key';
import { snapshotOf } from '../snapshots/archive-store';
import type { Snapshots } from '../snapshots/snapshots';
import type { PodArchives } from './pod-archives';
import type { SandboxContext } from './sandbox-context';
import { BOUND_STATES, type SandboxRow } from './sandbox-row';
import type { WorkspaceRow } from './workspace.repository';

/** Which workspace a session works on where only one sandbox may have the files: a second one forks them (cluster §2.2). */
export class WorkspacePlaces {
  constructor(
    private readonly context: SandboxContext,
    private readonly parts: { snapshots: Snapshots; archives: PodArchives },
  ) {}

  /** Workspaces that a sandbox of this request may be on. */
  static idsOf(request: ClaimRequest): string[] {
    const id = workspaceIdOf(request.tenantId, workspaceKeyOf(request));
    return [id, workspaceIdOf(request.tenantId, forkKeyOf(request.sessionId, id))];
  }

  /** @param shared the workspace that the request names */
  async placeFor({ tenantId, sessionId }: ClaimRequest, shared: WorkspaceRow): Promise<WorkspaceRow> {
    if (shared.storage !== 'snapshot' || shared.volume || utilityWorkspaceOf(sessionId) !== undefined) return shared;
    const forkKey = forkKeyOf(sessionId, shared._id);
    const fork = await this.context.workspaces.find(tenantId, workspaceIdOf(tenantId, forkKey));
    if (fork) return fork;
    const { holder } = shared;
    if (!holder || holder.sessionId === sessionId) return shared;
    const other = await this.context.sandboxes.find(holder.sandboxId);
    if (!other || !isBound(other)) return shared;
    if (utilityWorkspaceOf(holder.sessionId) !== undefined) {
      // What is done there for nobody in particular gives way.
      await this.parts.archives.suspend(other, 'a session wants the workspace');
      return shared;
    }
    return this.fork(shared, other, forkKey);
  }

  private async fork(from: WorkspaceRow, other: SandboxRow, key: string): Promise<WorkspaceRow> {
    const { archives, snapshots } = this.parts;
    const { tenantId, class: className, storage, _id } = from;
    await archives.save(other);
    const now = await this.context.workspaces.find(tenantId, _id);
    const to = { tenantId, workspaceId: workspaceIdOf(tenantId, key) };
    const copied = now?.snapshot && (await snapshots.copy({ tenantId, workspaceId: _id }, now.snapshot.n, to));
    const made = { class: className, storage, forkedFrom: _id, ...(copied ? { snapshot: snapshotOf(copied) } : {}) };
    this.context.logger.info({ workspaceId: to.workspaceId, from: _id }, 'workspace forked');
    return this.context.workspaces.obtain(tenantId, key, made);
  }
}

const isBound = ({ state }: SandboxRow): boolean => (BOUND_STATES as readonly string[]).includes(state);

const forkKeyOf = (sessionId: string, workspaceId: string): string => `s/${sessionId}/${workspaceId}`;

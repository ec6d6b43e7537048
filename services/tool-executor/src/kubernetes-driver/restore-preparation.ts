import { setTimeout as delay } from 'node:timers/promises';
import { UnavailableError } from '@margay/errors';
import type { Refusal } from '../driver/sandbox-driver';
import { utilityWorkspaceOf } from '../driver/workspace-key';
import { LRUCache } from 'lru-cache';
import type { LiveSandbox } from '../sandbox/sandbox-claims';
import type { PrepareContext, SandboxPreparation } from '../sandbox/sandbox-preparation';
import type { SandboxWish } from '../sandbox/sandbox-registry';
import type { Snapshots } from '../snapshots/snapshots';
import { bytesOf } from './classes';
import { isFleeting } from './pod-archives';
import type { SandboxContext } from './sandbox-context';
import { BOUND_STATES, isFinal, type SandboxRow } from './sandbox-row';
import type { WorkspaceHolders } from './workspace-holders';
import type { WorkspaceRow } from './workspace.repository';

export interface RestoreParts {
  snapshots: Snapshots;
  holders: WorkspaceHolders;
  /** Ends a sandbox that came too late. */
  end: (row: SandboxRow, reason: string) => Promise<unknown>;
}

const LOOK_AGAIN_MS = 250;
const REMEMBERED = 10_000;
/** A pod that was to leave and could not be saved is not waited for any longer. */
const LEAVING_MAX_MS = 120_000;

/** Brings the files of a workspace that has no volume into the sandbox that holds it (cluster §1.3, §2.2). */
export class RestorePreparation implements SandboxPreparation {
  /** Told how long it took from the claim until the files were there. */
  onRestored: (seconds: number, className: string) => void = () => undefined;
  private readonly plain = new LRUCache<string, true>({ max: REMEMBERED });

  constructor(
    private readonly context: SandboxContext,
    private readonly parts: RestoreParts,
  ) {}

  async admit(): Promise<void> {}

  async prepare(_wish: SandboxWish, sandbox: LiveSandbox, context: PrepareContext): Promise<void> {
    if (this.plain.has(sandbox.ref.sandboxId)) return;
    const row = await this.context.sandboxes.find(sandbox.ref.sandboxId);
    if (row?.volume && row.subPath === undefined) return this.wake(row, sandbox, context);
    if (!row || !isFleeting(row)) return;
    const held = await this.hold(row, context);
    if (held) await this.restore(row, held, sandbox, context);
  }

  /** Nothing has to be brought to a sandbox of which that is known already. */
  expectNothing(sandboxId: string): void {
    this.plain.set(sandboxId, true);
  }

  /** A workspace that slept gets its files on its new volume, once; whoever else comes waits for that. */
  private async wake(row: SandboxRow, { connection }: LiveSandbox, context: PrepareContext): Promise<void> {
    const { holders, snapshots } = this.parts;
    for (;;) {
      context.signal.throwIfAborted();
      const workspace = await this.context.workspaces.find(row.tenantId, row.workspaceId ?? '');
      if (workspace?.state !== 'waking' && workspace?.state !== 'dormant') return;
      context.report({ ...waiting(row), message: 'the files of the workspace are being restored' });
      const { holder, snapshot, tenantId, _id: workspaceId } = workspace;
      const other = holder && holder.sandboxId !== row._id && (await this.context.sandboxes.find(holder.sandboxId));
      if (other && !isFinal(other)) {
        await delay(LOOK_AGAIN_MS, undefined, { signal: context.signal });
        continue;
      }
      if (holder?.sandboxId !== row._id && !(await holders.take(workspace, row, false))) continue;
      const place = { client: connection.client, token: context.token };
      if (snapshot) await snapshots.restore({ tenantId, workspaceId }, place, { n: snapshot.n });
      await holders.noteAwake(workspace, row._id);
      return this.onRestored(ageOf(row.claimedAt) / 1_000, row.class);
    }
  }

  /** @returns undefined: it has its files */
  private async hold(row: SandboxRow, { report, signal }: PrepareContext): Promise<Held | undefined> {
    const { holders } = this.parts;
    for (;;) {
      signal.throwIfAborted();
      const workspace = await this.context.workspaces.find(row.tenantId, row.workspaceId ?? '');
      if (!workspace) throw gone(row);
      const { holder } = workspace;
      if (holder?.sandboxId === row._id) {
        if (holder.restoredAt) return undefined;
        return { workspace, wasLost: holder.wasLost };
      }
      const before = holder && (await this.context.sandboxes.find(holder.sandboxId));
      if (before && isBound(before)) {
        await this.parts.end(row, 'another sandbox has the workspace');
        throw gone(row);
      }
      if (before && isLeaving(before)) {
        report(waiting(row));
        await delay(LOOK_AGAIN_MS, undefined, { signal });
        continue;
      }
      const wasLost = holder?.restoredAt ? before !== undefined && isUnsaved(before) : holder?.wasLost === true;
      if (await holders.take(workspace, row, wasLost)) return { workspace, wasLost };
    }
  }

  private async restore(
    row: SandboxRow,
    { workspace, wasLost }: Held,
    sandbox: LiveSandbox,
    { token, report }: PrepareContext,
  ): Promise<void> {
    const { snapshots, holders } = this.parts;
    const { snapshot, tenantId, _id: workspaceId } = workspace;
    if (snapshot) {
      report({ ...waiting(row), message: 'the files of the workspace are being restored' });
      const maxBytes = bytesOf(this.context.settings.class(row.class).workspace);
      const { client } = sandbox.connection;
      await snapshots.restore({ tenantId, workspaceId }, { client, token }, { n: snapshot.n, maxBytes });
      this.onRestored(ageOf(row.claimedAt) / 1_000, row.class);
    } else if (wasLost) await holders.beginAnew(workspace);
    await holders.noteRestored(workspace, row._id);
    this.tell(sandbox, workspace, wasLost);
  }

  private tell(sandbox: LiveSandbox, { forkedFrom, holder, snapshot, _id }: WorkspaceRow, wasLost: boolean): void {
    if (utilityWorkspaceOf(sandbox.ref.sessionId) !== undefined) return;
    const snapshotId = snapshot ? `${_id}/${snapshot.n}` : null;
    if (wasLost) {
      const age = snapshot ? Math.round(ageOf(snapshot.at) / 1_000) : null;
      sandbox.notices.push({ type: 'workspace_restored', payload: { snapshot_id: snapshotId, age_seconds: age } });
    } else if (forkedFrom !== undefined && !holder)
      sandbox.notices.push({ type: 'workspace_forked', payload: { from: forkedFrom, snapshot_id: snapshotId } });
  }
}

interface Held {
  /** As it was before it was taken. */
  workspace: WorkspaceRow;
  /** Whoever held it before ended without a last archive. */
  wasLost: boolean;
}

const isBound = ({ state }: SandboxRow): boolean => (BOUND_STATES as readonly string[]).includes(state);

/** Its last archive is still being taken. */
function isLeaving(row: SandboxRow): boolean {
  if (isFinal(row) || isSaved(row)) return false;
  return ageOf(row.endedAt) < LEAVING_MAX_MS;
}

function isUnsaved(row: SandboxRow): boolean {
  return row.state === 'lost' || row.unsaved !== undefined || (row.reason === 'pod_leaving' && !isSaved(row));
}

/** Saved after it served its last call. */
function isSaved({ savedAt, endedAt }: SandboxRow): boolean {
  return savedAt !== undefined && endedAt !== undefined && savedAt >= endedAt;
}

function ageOf(date: Date | undefined): number {
  return date === undefined ? 0 : Date.now() - date.getTime();
}

function waiting({ _id: sandboxId, state }: SandboxRow): Refusal {
  return { sandboxId, state, reason: 'restoring', message: 'the files of the last sandbox are being saved' };
}

function gone({ _id }: SandboxRow): Error {
  return new UnavailableError('workspace_taken', `Sandbox ${_id} came too late for its workspace.`);
}

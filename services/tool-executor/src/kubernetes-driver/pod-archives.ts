import type { EventInput } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import { SandboxConnection } from '../sandbox/sandbox-connection';
import type { SandboxGrants } from '../sandbox/sandbox-grants';
import type { ArchivePlace, Snapshots } from '../snapshots/snapshots';
import { FIRST_EPOCH } from '../driver/epoch';
import type { NoticeListener } from '../driver/sandbox-driver';
import type { Endings } from './endings';
import type { KubernetesLedger } from './kubernetes-ledger';
import type { SandboxContext } from './sandbox-context';
import { endpointOf, refOf } from './sandbox-ref';
import { isFinal, type SandboxRow } from './sandbox-row';
import type { WorkspaceHolders } from './workspace-holders';

export interface PodArchivesParts {
  snapshots: Snapshots;
  holders: WorkspaceHolders;
  endings: Endings;
  grants: SandboxGrants;
  ledger: KubernetesLedger;
}

/** A pod that leaves is given so long for its last archive (cluster §1.8). */
const SAVE_MS = 25_000;
/** With the calls that a leaving pod lets finish first. */
const LAST_MS = 88_000;
const EVERY_MS = 300_000;
/** A pod whose files could not be saved is not stopped for being idle so soon. */
const SPARED_MS = 3_600_000;
/** Calls, or another archive, came first: nobody has to know. */
const IN_THE_WAY = new Set(['snapshot_dropped', 'archive_exists']);

type Saved = 'saved' | 'nothing' | 'failed';

/** Archives of sandboxes whose files end with their pods: after runs, now and then, and before the end (cluster §2.2). */
export class PodArchives {
  /** Told what a session is to know. */
  onNotice: NoticeListener = () => undefined;
  /** Under way, by sandbox. */
  private readonly saving = new Map<string, Promise<Saved>>();

  constructor(
    private readonly context: SandboxContext,
    private readonly parts: PodArchivesParts,
  ) {}

  /** Never throws: whoever wants more than that tries again. @returns whether its files are safe */
  async save(row: SandboxRow, { last = false } = {}): Promise<Saved> {
    if (!isFleeting(row)) return 'nothing';
    const before = this.saving.get(row._id);
    if (before && !last) return before;
    const saving = (before ?? Promise.resolve()).then(() => this.saveNow(row, last));
    this.saving.set(row._id, saving);
    try {
      return await saving;
    } finally {
      if (this.saving.get(row._id) === saving) this.saving.delete(row._id);
    }
  }

  /** Saves it and ends it, unless it is wanted again meanwhile or cannot be saved. */
  async suspend(row: SandboxRow, reason: string): Promise<boolean> {
    const { sandboxes } = this.context;
    if (!isFleeting(row)) return this.parts.endings.end(row, 'released', reason);
    const saved = await this.save(row);
    if (saved === 'failed') {
      await sandboxes.spare(row._id, new Date(Date.now() + SPARED_MS));
      return false;
    }
    const now = await sandboxes.find(row._id);
    const isWanted = now?.lastActiveAt?.getTime() !== row.lastActiveAt?.getTime();
    if (!now || isFinal(now) || isWanted) return false;
    return this.parts.endings.end(now, 'released', reason);
  }

  /** Those that have been used since they were saved last. @returns how many were saved */
  async sweep(): Promise<number> {
    const due = Date.now() - EVERY_MS;
    let count = 0;
    for (const row of await this.context.sandboxes.listLive()) {
      const { state, savedAt, claimedAt, createdAt, lastActiveAt } = row;
      if (state !== 'ready' || !isFleeting(row)) continue;
      const since = (savedAt ?? claimedAt ?? createdAt).getTime();
      if (since > due || (lastActiveAt?.getTime() ?? 0) < since) continue;
      if ((await this.save(row)) === 'saved') count += 1;
    }
    return count;
  }

  /** A way to its files. Close it afterwards. */
  async open(row: SandboxRow): Promise<ArchivePlace & { close: () => void }> {
    const { grants, ledger } = this.parts;
    const { tenantId, sessionId = '' } = row;
    const connection = await SandboxConnection.open(endpointOf(row));
    const token = async (): Promise<string> => {
      const { generation: storeGeneration, epoch } = (await ledger.highestEpoch(tenantId, sessionId)) ?? FIRST_EPOCH;
      return grants.token({ sandboxId: connection.audience, tenantId, sessionId, storeGeneration, epoch });
    };
    return { client: connection.client, token, close: () => connection.close() };
  }

  private async saveNow(row: SandboxRow, last: boolean): Promise<Saved> {
    const { _id: sandboxId, tenantId, workspaceId = '' } = row;
    const { snapshots, holders } = this.parts;
    const { logger, sandboxes, workspaces } = this.context;
    const owner = { tenantId, workspaceId };
    try {
      const workspace = await workspaces.find(tenantId, workspaceId);
      // Before its files have come to it they are not its own.
      if (workspace?.holder?.sandboxId !== sandboxId || !workspace.holder.restoredAt) return 'nothing';
      const place = await this.open(row);
      const began = new Date();
      try {
        const archive = await snapshots.take(owner, place, { last, timeoutMs: last ? LAST_MS : SAVE_MS });
        if (archive.n === workspace.snapshot?.n || (await holders.noteSnapshot(workspace, sandboxId, archive)))
          await sandboxes.noteSaved(sandboxId, began);
        // Somebody else has the files by now; an older archive may be what theirs came from.
        else if (archive.at >= began) await snapshots.remove(archive);
      } finally {
        place.close();
      }
      return 'saved';
    } catch (error) {
      const reason = isMargayError(error) ? error.reason : 'internal';
      logger.warn({ sandboxId, workspaceId, reason, err: error }, 'a workspace could not be archived');
      if (IN_THE_WAY.has(reason)) return 'failed';
      await sandboxes
        .noteUnsaved(sandboxId, reason)
        .catch((cause: unknown) => logger.warn({ sandboxId, err: cause }, 'nor could that be recorded'));
      this.onNotice(refOf(row), failureOf(reason));
      return 'failed';
    }
  }
}

function failureOf(reason: string): EventInput {
  const text = `The files of this session could not be archived (${reason}); they are lost if its sandbox is.`;
  return { type: 'run_note', payload: { text, kind: 'workspace_snapshot_failed', reason } };
}

/** Its files are in a folder of its pod. */
export function isFleeting({ state, volume, podUid, ip, workspaceId, sessionId }: SandboxRow): boolean {
  if (state === 'starting') return false;
  return !volume && podUid !== undefined && ip !== undefined && workspaceId !== undefined && sessionId !== undefined;
}

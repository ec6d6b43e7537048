import { faultPoint, type Logger } from '@margay/platform';
import type { SandboxInventory } from '../driver/sandbox-inventory';
import type { Retention } from './retention';
import type { WorkspaceDocument } from './workspace-document';
import type { WorkspaceRecords } from './workspace-records';

/** Something beside its files that goes with a workspace; idempotent. */
export interface WorkspaceRemnant {
  name: string;
  remove(workspace: Pick<WorkspaceDocument, '_id' | 'tenantId'>): Promise<void>;
}

export interface WorkspaceRemovalPorts {
  records: WorkspaceRecords;
  inventory: SandboxInventory;
  /** Ends the sandbox of a session. */
  release: (tenantId: string, sessionId: string) => Promise<void>;
  /** In this order, after the files. */
  remnants: readonly WorkspaceRemnant[];
  retention: Retention;
  logger: Logger;
  now?: () => Date;
}

/**
 * Workspaces that go: told by somebody, or because their time is over. First the row says so, so that nobody claims there any
 * more; then sandboxes, files and what else there is go; last the row becomes a memory. Each step may be done again, and is
 * until it succeeds: what cannot be removed stands in the row and in the log.
 */
export class WorkspaceRemoval {
  private readonly now: () => Date;

  constructor(private readonly ports: WorkspaceRemovalPorts) {
    this.now = ports.now ?? (() => new Date());
  }

  /** One bounded batch. @returns how many are gone */
  async sweep(): Promise<number> {
    const { records, retention } = this.ports;
    const now = this.now();
    const candidates = [
      ...(await records.listUnused(retention.unusedBefore(now))),
      ...(await records.listRetired(now)),
    ];
    for (const row of candidates) await this.condemn(row, now);
    let gone = 0;
    for (const row of await records.listDeleting()) if (await this.remove(row)) gone += 1;
    return gone;
  }

  /** Goes on with one that is being deleted. Never rejects. @returns whether it is gone */
  async remove(row: WorkspaceDocument): Promise<boolean> {
    if (row.legalHold === true) return false;
    const { records, logger } = this.ports;
    const log = { workspaceId: row._id, tenantId: row.tenantId };
    try {
      const obstacle = await this.removeParts(row);
      if (obstacle === undefined) {
        await records.bury(row);
        logger.info(log, 'workspace deleted');
        return true;
      }
      await this.note(row, obstacle);
    } catch (error) {
      logger.warn({ ...log, err: error }, 'a workspace could not be deleted, trying again');
      await this.note(row, error instanceof Error ? error.message : String(error)).catch((cause: unknown) =>
        logger.debug({ ...log, err: cause }, 'the obstacle could not be noted'),
      );
    }
    return false;
  }

  /** What its time is over for; decided again on the row as it is then. */
  private async condemn({ _id, tenantId }: WorkspaceDocument, now: Date): Promise<void> {
    const { records, retention, logger } = this.ports;
    const changed = await records.changeLatest({ _id, tenantId }, (row) =>
      retention.isDue(row, now) ? { set: { state: 'deleting' } } : undefined,
    );
    if (changed) logger.info({ workspaceId: _id, tenantId }, "a workspace's time is over");
  }

  /** @returns what is still in the way */
  private async removeParts(row: WorkspaceDocument): Promise<string | undefined> {
    const { inventory, remnants, records } = this.ports;
    const parts = await records.listParts(row);
    const detail = () => `${row.key} ${row._id}`;
    if ((await this.endSandboxes([row, ...parts])).left > 0) return 'a sandbox works there';
    await faultPoint('workspace.before-files', detail);
    await inventory.removeFiles(row);
    await faultPoint('workspace.after-files', detail);
    for (const gone of [row, ...parts]) for (const remnant of remnants) await remnant.remove(gone);
    // One that was claimed before the row said so may have come meanwhile, and made files.
    if ((await this.endSandboxes([row, ...parts])).found > 0) return 'a sandbox came while the files went';
    for (const part of parts) await records.forgetPart(part);
    return (await records.hasParts(row)) ? 'there are more worktrees' : undefined;
  }

  private async endSandboxes(rows: readonly WorkspaceDocument[]): Promise<{ found: number; left: number }> {
    const { inventory, release } = this.ports;
    let [found, left] = [0, 0];
    for (const row of rows) {
      const living = await inventory.listOn(row);
      for (const { tenantId, sessionId } of living) await release(tenantId, sessionId);
      found += living.length;
      if (living.length > 0) left += (await inventory.listOn(row)).length;
    }
    return { found, left };
  }

  private async note(row: WorkspaceDocument, obstacle: string): Promise<void> {
    await this.ports.records.changeLatest(row, (latest) =>
      latest.state === 'deleting' && latest.obstacle !== obstacle
        ? { set: { obstacle: obstacle.slice(0, 500) } }
        : undefined,
    );
  }
}

import { isMargayError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import type { WorkspaceDocument } from '../content/workspace-document';
import type { WorkspaceRecords } from '../content/workspace-records';
import type { OpenDriver } from '../driver/open-driver';
import type { UtilitySandboxes } from '../utility/utility-sandboxes';
import type { Snapshots } from './snapshots';
import { ownerOf, utilityOf, type WorkspaceSnapshots } from './workspace-snapshots';

export interface DormancyPorts {
  records: Pick<WorkspaceRecords, 'listIdle' | 'listDirty' | 'hasParts' | 'changeLatest'>;
  workspaces: Pick<WorkspaceSnapshots, 'archive' | 'putToSleep'>;
  snapshots: Pick<Snapshots, 'check'>;
  utilities: Pick<UtilitySandboxes, 'end'>;
  inventory: OpenDriver['inventory'];
  dropVolume: NonNullable<OpenDriver['dropVolume']>;
  logger: Logger;
  now?: () => number;
}

export interface DormancyOptions {
  /** 0 = never. */
  dormantAfterDays: number;
}

const DAY_MS = 24 * 3_600_000;
/** One that cannot be archived, e.g. because it is too large, is tried again after that. */
const RETRY_MS = 7 * DAY_MS;
/** In one turn of the sweep. */
const BATCH = 5;

/**
 * Volumes that nobody has used for long become archives, which are read back before the volume goes; those in use are
 * archived once a day (cluster §2.2, §2.6).
 */
export class Dormancy {
  private readonly now: () => number;

  constructor(
    private readonly ports: DormancyPorts,
    private readonly options: DormancyOptions,
  ) {
    this.now = ports.now ?? Date.now;
  }

  /** @returns how many were archived or put to sleep */
  async sweep(): Promise<number> {
    const { dormantAfterDays } = this.options;
    const { records } = this.ports;
    const now = new Date(this.now());
    const dueAt = new Date(now.getTime() - dormantAfterDays * DAY_MS);
    const idle = dormantAfterDays === 0 ? [] : await records.listIdle(dueAt, now, BATCH);
    const dirty = await records.listDirty(new Date(now.getTime() - DAY_MS), now, BATCH);
    let count = 0;
    for (const row of idle) if (await this.attempt(row, () => this.putToSleep(row))) count += 1;
    const sleeping = new Set(idle.map(({ _id }) => _id));
    for (const row of dirty.filter(({ _id }) => !sleeping.has(_id)))
      if (await this.attempt(row, () => this.archive(row))) count += 1;
    return count;
  }

  private async archive(row: WorkspaceDocument): Promise<boolean> {
    await this.ports.workspaces.archive(row);
    return true;
  }

  private async putToSleep(row: WorkspaceDocument): Promise<boolean> {
    const { workspaces, snapshots, utilities, dropVolume, records, logger } = this.ports;
    // Worktrees are folders of it, each with sandboxes of its own.
    if ((await this.isInUse(row)) || (await records.hasParts(row))) return false;
    const archive = await workspaces.archive(row);
    await snapshots.check(ownerOf(row), archive.n);
    if (!(await workspaces.putToSleep(row, archive))) return false;
    await utilities.end(utilityOf(row));
    if (row.volume) await dropVolume(row.volume);
    logger.info({ workspaceId: row._id, n: archive.n, bytes: archive.bytes }, 'workspace dormant');
    return true;
  }

  private async isInUse(row: WorkspaceDocument): Promise<boolean> {
    return (await this.ports.inventory.listOn(row)).length > 0;
  }

  private async attempt(row: WorkspaceDocument, work: () => Promise<boolean>): Promise<boolean> {
    const { records, logger } = this.ports;
    try {
      return await work();
    } catch (error) {
      const reason = isMargayError(error) ? error.reason : 'internal';
      logger.warn({ workspaceId: row._id, reason, err: error }, 'a workspace could not be archived');
      const waitMs = isMargayError(error) && error.retryable ? DAY_MS / 24 : RETRY_MS;
      await records.changeLatest(row, () => ({ set: { archiveNotBefore: new Date(this.now() + waitMs) } }));
      return false;
    }
  }
}

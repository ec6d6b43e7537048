import type { Logger, Sweep } from '@margay/platform';
import type { WorktreeRepository, WorktreeRow } from './worktree.repository';
import type { WorktreesService } from './worktrees.service';

const EVERY_MS = 5_000;
const BATCH = 20;

export interface WorktreeSweepPorts {
  rows: Pick<WorktreeRepository, 'due'>;
  worktrees: Pick<WorktreesService, 'clear'>;
  logger: Logger;
}

/** Removes worktrees whose last session has ended, and goes on with what broke off. */
export function worktreeSweep({ rows, worktrees, logger }: WorktreeSweepPorts): Sweep {
  const clear = async (row: WorktreeRow): Promise<boolean> => {
    try {
      return await worktrees.clear(row);
    } catch (error) {
      logger.warn({ err: error, worktree: row.worktreeId }, 'a worktree could not be removed; it is tried again');
      return false;
    }
  };
  return {
    name: 'worktrees',
    everyMs: EVERY_MS,
    async sweep() {
      let cleared = 0;
      // One after the other: each may need a sandbox.
      for (const row of await rows.due(new Date(), BATCH)) if (await clear(row)) cleared += 1;
      return cleared;
    },
  };
}

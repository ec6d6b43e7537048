import { eachOf, type Sweep } from '@margay/platform';
import type { ManagedProjectRepository } from '../projects/managed-project.repository';
import type { ProjectWorkspaces } from './project-workspaces';

const EVERY_MS = 60_000;
const BATCH = 100;

export interface RetirementPorts {
  projects: Pick<ManagedProjectRepository, 'listUnretired' | 'noteRetired'>;
  workspaces: Pick<ProjectWorkspaces, 'retire'>;
}

/** Tells tool-executor of deleted projects, where that failed when they were deleted. */
export function retirementSweep({ projects, workspaces }: RetirementPorts): Sweep {
  return {
    name: 'project-retirement',
    everyMs: EVERY_MS,
    sweep: async () => {
      const rows = await projects.listUnretired(BATCH);
      await eachOf(rows, async ({ tenantId, _id }) => {
        await workspaces.retire(tenantId, _id);
        await projects.noteRetired(tenantId, _id);
      });
      return rows.length;
    },
  };
}

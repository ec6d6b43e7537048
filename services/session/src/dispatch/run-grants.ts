import type { RunGrant } from '@margay/contracts';
import type { Head, HeadRun } from '@margay/log';
import type { KeyRing } from '@margay/platform';
import type { ProjectsService } from '../projects/projects.service';

/** Generation of the store; a restore raises it, so that older grants open nothing. */
const STORE_GENERATION = 0;

/** Signs what the owner of a run may touch. */
export class RunGrants {
  constructor(
    private readonly keys: KeyRing,
    private readonly projects: ProjectsService,
  ) {}

  sign(head: Head, run: HeadRun, epoch: number): Promise<string> {
    const grant: RunGrant = {
      v: 1,
      tenantId: head.tenantId,
      sessionId: head.sessionId,
      runId: run.id,
      epoch,
      storeGeneration: STORE_GENERATION,
      principal: run.principal,
      workspace: this.projects.workspaceOf(head.binding),
    };
    return this.keys.signRunGrant(grant);
  }
}

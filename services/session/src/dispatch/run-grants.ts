import type { RunGrant } from '@margay/contracts';
import { bindingOf, type Head, type HeadRun } from '@margay/log';
import type { KeyRing } from '@margay/platform';
import type { ProjectsService } from '../projects/projects.service';

/** Signs what the owner of a run may touch. */
export class RunGrants {
  constructor(
    private readonly keys: KeyRing,
    private readonly projects: ProjectsService,
    /** Of the store; a restore raises it, so that older grants open nothing. */
    private readonly storeGeneration: number,
  ) {}

  sign(head: Head, run: HeadRun, epoch: number): Promise<string> {
    const grant: RunGrant = {
      v: 1,
      tenantId: head.tenantId,
      sessionId: head.sessionId,
      runId: run.id,
      epoch,
      storeGeneration: this.storeGeneration,
      principal: run.principal,
      owner: head.owner,
      ...(run.sandboxClass === undefined ? {} : { sandboxClass: run.sandboxClass }),
      workspace: this.projects.workspaceOf(bindingOf(head)),
    };
    return this.keys.signRunGrant(grant);
  }
}

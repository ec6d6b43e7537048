import type { Principal, sessionsPb } from '@margay/contracts';
import { InvalidArgumentError } from '@margay/errors';
import type { Head } from '@margay/log';
import { requireAccess, requireDriver } from '../access/access-rules';
import { rejectionError, type SessionLog } from '../commits/session-log';
import type { EffectsService } from '../effects/effects.service';
import type { ModelsService } from '../projects/models.service';
import type { Binding, ProjectsService } from '../projects/projects.service';
import type { SandboxClasses } from '../projects/sandbox-classes';
import { commitIdOf } from '../sessions/request-ids';
import { textOf } from '../sessions/run-request';
import { specOf } from './session-spec';

export interface BindingPorts {
  log: SessionLog;
  effects: Pick<EffectsService, 'redo'>;
  projects: ProjectsService;
  models: Pick<ModelsService, 'defaultModel'>;
  classes: Pick<SandboxClasses, 'chosen'>;
  stepBudget: number;
}

/** What a session is, and in which project it works. */
export class BindingService {
  constructor(private readonly ports: BindingPorts) {}

  /** @throws NotFoundError `session_not_found` */
  async spec(principal: Principal, sessionId: string): Promise<sessionsPb.GetSpecResponse> {
    const { head } = await this.ports.log.confirmedTip(sessionId);
    requireAccess(principal, head);
    return { specJson: await this.told(head) };
  }

  /**
   * The session works in that project from its next run on.
   * @throws InvalidArgumentError `bad_request`, `unknown_project`; FailedPreconditionError `session_terminated`,
   *   `ambiguous_project`; NotFoundError `session_not_found`
   */
  async bind(principal: Principal, request: sessionsPb.BindProjectRequest): Promise<sessionsPb.BindProjectResponse> {
    const { sessionId, project, idempotencyKey } = request;
    const { log, projects, effects } = this.ports;
    const { head } = await log.confirmedTip(sessionId);
    requireAccess(principal, head);
    requireDriver(principal, 'sessions.interact');
    // Of a session that is over nothing else is worth saying.
    if (head.terminated) throw rejectionError({ reason: 'session_terminated', message: 'Session is permanently terminated' }); // prettier-ignore
    if (project === '') throw new InvalidArgumentError('bad_request', "Invalid input: 'project' is required");
    const binding = await projects.bind(head.tenantId, project, '');
    const commitId = commitIdOf(principal, sessionId, 'bind', idempotencyKey);
    const context = await this.contextOf(head, binding);
    const outcome = await log.commit(sessionId, { kind: 'bind', commitId, binding, context });
    if (outcome.replayed) void effects.redo(sessionId, outcome.c);
    return { specJson: await this.told(outcome.head), replayed: outcome.replayed && commitId.startsWith('ik:') };
  }

  /** Names the repository and branch where they are known; what a former project had is taken back. */
  private async contextOf(head: Head, { project }: Binding): Promise<Record<string, unknown>> {
    const found = project === null ? {} : await this.ports.projects.repositoryOf(head.tenantId, project);
    const told: Record<string, unknown> = { cwd: null, repo: null, branch: null, ...found };
    const had = (name: string): boolean => (head.context[name] ?? null) !== null;
    return {
      project,
      ...Object.fromEntries(Object.entries(told).filter(([name, value]) => value !== null || had(name))),
    };
  }

  private async told(head: Head): Promise<string> {
    const { projects, models, classes, stepBudget } = this.ports;
    const { project } = head.binding;
    const slug = project === null ? null : projects.nameOf(project);
    const wanted = textOf(head.context['sandbox_class']);
    const sandboxClass = await classes.chosen({ tenantId: head.tenantId, wanted, project });
    return JSON.stringify(specOf(head, { defaultModel: models.defaultModel ?? '', stepBudget, slug, sandboxClass }));
  }
}

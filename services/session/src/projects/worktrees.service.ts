import { randomUUID } from 'node:crypto';
import {
  isoMicros,
  type executorPb,
  type ManagedProject,
  type Principal,
  type sessionsPb,
  type Worktree,
} from '@margay/contracts';
import {
  AbortedError,
  FailedPreconditionError,
  InvalidArgumentError,
  isMargayError,
  NotFoundError,
} from '@margay/errors';
import type { Head } from '@margay/log';
import { systemPrincipal, type GrpcClient } from '@margay/platform';
import { requireDriver } from '../access/access-rules';
import type { SessionLog } from '../commits/session-log';
import type { SessionRepository } from '../effects/session.repository';
import { checkedBranch } from './branch-name';
import { managedIdIn } from './managed-projects';
import type { ProjectsService } from './projects.service';
import { parseWorktreeId, slugOf, worktreeIdOf } from './worktree-id';
import type { WorktreeRepository, WorktreeRow } from './worktree.repository';

type Executor = Pick<
  GrpcClient<typeof executorPb.ExecutorDefinition>,
  'listWorktrees' | 'addWorktree' | 'removeWorktree'
>;

export interface WorktreesPorts {
  worktrees: WorktreeRepository;
  sessions: Pick<SessionRepository, 'boundTo'>;
  log: Pick<SessionLog, 'confirmedTip' | 'submit'>;
  projects: ProjectsService;
  executor: Executor;
}

/** Somebody waits for it, and it may need a sandbox that is not there yet. */
const GIT_TIMEOUT_MS = 40_000;
const LIST_TIMEOUT_MS = 15_000;
/** One that was not finished by then is cleared away. */
const MAKING_MS = 5 * 60_000;
/** One that could not be removed is tried again. */
const AGAIN_MS = 60_000;
/** Branches that Margay named go with their worktree. */
const OWNED = /^(margay|mewbo|nano-agent)[/-]/;

/** Working trees of projects: a row here, then a folder made by git in a sandbox, and the reverse at its end. */
export class WorktreesService {
  constructor(private readonly ports: WorktreesPorts) {}

  /** Those made here and by hand. @throws NotFoundError `project_not_found` */
  async list({ tenantId }: Principal, named: string): Promise<sessionsPb.ListWorktreesResponse> {
    const parent = await this.parentOf(tenantId, named);
    const asked = { workspaceJson: this.workspaceOf(parent) };
    const [rows, found] = await Promise.all([
      this.ports.worktrees.list(tenantId, parent),
      this.ports.executor.listWorktrees(asked, optionsOf(tenantId, LIST_TIMEOUT_MS)),
    ]);
    const bySlug = new Map(rows.filter(({ state }) => state === 'live').map((row) => [row.slug, row]));
    const shown = found.worktrees.map((worktree) => this.viewOf(parent, worktree, bySlug.get(worktree.slug)));
    const seen = new Set(found.worktrees.map(({ slug }) => slug));
    // One that the index has not seen yet is there all the same.
    const unseen = [...bySlug.values()].filter(({ slug }) => !seen.has(slug));
    const added = unseen.map((row) => this.viewOf(parent, unseenOf(row), row));
    return { worktreesJson: [...shown, ...added].map((worktree) => JSON.stringify(worktree)), stale: found.stale };
  }

  /**
   * @throws InvalidArgumentError `bad_request`, `not_git`, `branch_unknown`; NotFoundError `project_not_found`;
   *   AbortedError `branch_in_use`, `branch_exists`, `worktree_exists`
   */
  async create(
    principal: Principal,
    request: sessionsPb.CreateWorktreeRequest,
  ): Promise<sessionsPb.CreateWorktreeResponse> {
    requireDriver(principal, 'sessions.create');
    const { tenantId, principal: owner } = principal;
    const branch = checkedBranch('branch', request.branch);
    const base = request.base === '' ? '' : checkedBranch('base', request.base);
    const parent = await this.parentOf(tenantId, request.project);
    const slug = slugOf(branch);
    if (slug === undefined) throw new InvalidArgumentError('bad_request', `Invalid input: 'branch': no folder can be named for ${branch}`); // prettier-ignore
    const made = { tenantId, worktreeId: worktreeIdOf({ parent, slug }), parent, slug, branch, owner };
    const { row } = await this.ports.worktrees.add(made, later(MAKING_MS));
    if (row.branch !== branch) throw new AbortedError('worktree_exists', `'${row.branch}' has the folder ${slug} already; remove its worktree or rename the branch.`); // prettier-ignore
    if (row.state === 'removing') throw new AbortedError('worktree_exists', `the worktree of ${branch} is being removed; ask again in a moment.`); // prettier-ignore
    const { worktree, created } = await this.make(row, base);
    if (row.state === 'making') await this.ports.worktrees.change(row, 'live', undefined);
    const shown = this.viewOf(parent, worktree ?? unseenOf(row), row);
    return { worktreeJson: JSON.stringify(shown), replayed: !created };
  }

  /**
   * @throws InvalidArgumentError `foreign_worktree`; NotFoundError `project_not_found`;
   *   FailedPreconditionError `worktree_dirty`, `worktree_busy`
   */
  async delete(
    principal: Principal,
    request: sessionsPb.DeleteWorktreeRequest,
  ): Promise<sessionsPb.DeleteWorktreeResponse> {
    requireDriver(principal, 'sessions.create');
    const { tenantId } = principal;
    const { worktreeId, force } = request;
    const parent = await this.parentOf(tenantId, request.project);
    if (parseWorktreeId(worktreeId)?.parent !== parent)
      throw new InvalidArgumentError('foreign_worktree', `'${worktreeId.slice(0, 64)}' is no worktree of this project`);
    const row = await this.ports.worktrees.find(tenantId, worktreeId);
    if (!row) return { alreadyAbsent: true };
    if (!force && (await this.isUsed(row, (head) => worksIn(head, row)))) throw busy(worktreeId);
    const leaving = await this.ports.worktrees.change(row, 'removing', later(AGAIN_MS));
    if (!leaving) throw new AbortedError('worktree_exists', `${worktreeId} is being changed; ask again in a moment.`);
    if ((await this.isEnteredYet(leaving)) && !force) {
      await this.ports.worktrees.change(leaving, 'live', undefined);
      throw busy(worktreeId);
    }
    await this.remove(leaving, force);
    return { alreadyAbsent: false };
  }

  /** As a project. @throws NotFoundError `project_not_found` */
  async get({ tenantId }: Principal, worktreeId: string): Promise<ManagedProject> {
    const found = await this.ports.projects.find(tenantId, worktreeId);
    const row = found === worktreeId ? await this.ports.worktrees.find(tenantId, worktreeId) : undefined;
    if (!row) throw notFound(worktreeId);
    const at = isoMicros(row.createdAt.getTime() * 1_000);
    return {
      project_id: worktreeId,
      name: row.branch,
      description: '',
      path: this.ports.projects.pathOfWorktree(row),
      path_source: 'auto',
      folder_created: true,
      created_at: at,
      updated_at: at,
      parent_project_id: managedIdIn(row.parent) ?? row.parent,
      branch: row.branch,
      is_worktree: true,
    };
  }

  /** Removes one that nobody uses any more, or that was never finished. @returns whether it is gone */
  async clear(row: WorktreeRow): Promise<boolean> {
    const isAlive = ({ run, terminated, binding }: Head): boolean =>
      run !== null || (terminated === null && binding.project === row.worktreeId);
    if (row.state === 'live' && (await this.isUsed(row, isAlive))) {
      await this.ports.worktrees.change(row, 'live', undefined);
      return false;
    }
    const leaving = await this.ports.worktrees.change(row, 'removing', later(AGAIN_MS));
    if (!leaving) return false;
    // From here on no session is bound to it; one may have been a moment ago.
    if ((await this.isUsed(leaving, isAlive)) || (await this.isEnteredYet(leaving))) {
      await this.ports.worktrees.change(leaving, 'live', undefined);
      return false;
    }
    try {
      await this.remove(leaving, false);
      return true;
    } catch (error) {
      // It stays, for its changes are nowhere else.
      if (isMargayError(error) && error.reason === 'worktree_dirty') return false;
      throw error;
    }
  }

  /** Asks the logs: rows tell of a run that was accepted a moment ago only when its effects are applied. */
  private async isUsed(row: WorktreeRow, isUse: (head: Head) => boolean): Promise<boolean> {
    for (const sessionId of await this.sessionsOf(row))
      if (isUse((await this.ports.log.confirmedTip(sessionId)).head)) return true;
    return false;
  }

  /**
   * Whether a run came to be active there before nobody could enter any more. Who had entered, and has not started his
   * run yet, starts none: each log has either the run before the fence, or refuses it behind.
   */
  private async isEnteredYet(leaving: WorktreeRow): Promise<boolean> {
    for (const sessionId of await this.sessionsOf(leaving)) {
      const outcome = await this.ports.log.submit(sessionId, { kind: 'fence', commitId: `fence:${randomUUID()}` });
      if (!outcome.ok && worksIn(outcome.head, leaving)) return true;
    }
    return false;
  }

  private async sessionsOf({ tenantId, worktreeId, sessions = [] }: WorktreeRow): Promise<Set<string>> {
    return new Set([...sessions, ...(await this.ports.sessions.boundTo(tenantId, worktreeId))]);
  }

  private async make(row: WorktreeRow, base: string): Promise<executorPb.AddWorktreeResponse> {
    const { tenantId, parent, slug, branch } = row;
    const asked = { workspaceJson: this.workspaceOf(parent), slug, branch, base };
    try {
      return await this.ports.executor.addWorktree(asked, optionsOf(tenantId, GIT_TIMEOUT_MS));
    } catch (error) {
      const isRefused = isMargayError(error) && !['UNAVAILABLE', 'DEADLINE_EXCEEDED', 'INTERNAL'].includes(error.code);
      if (isRefused && row.state === 'making') await this.ports.worktrees.remove(row);
      throw error;
    }
  }

  private async remove(row: WorktreeRow, force: boolean): Promise<void> {
    const { tenantId, parent, slug, branch } = row;
    const deleteBranch = OWNED.test(branch) && !force;
    const asked = { workspaceJson: this.workspaceOf(parent), slug, force, deleteBranch };
    try {
      await this.ports.executor.removeWorktree(asked, optionsOf(tenantId, GIT_TIMEOUT_MS));
    } catch (error) {
      const isKept = isMargayError(error) && error.reason === 'worktree_dirty';
      if (isKept) await this.ports.worktrees.change(row, 'live', undefined);
      throw error;
    }
    await this.ports.worktrees.remove(row);
  }

  /** The project whose repository is meant; a worktree has that of its project. */
  private async parentOf(tenantId: string, named: string): Promise<string> {
    const found = await this.ports.projects.find(tenantId, named);
    if (found === undefined) throw notFound(named);
    return parseWorktreeId(found)?.parent ?? found;
  }

  private workspaceOf(parent: string): string {
    return JSON.stringify(this.ports.projects.workspaceOf({ project: parent, cwd: null }));
  }

  private viewOf(parent: string, found: executorPb.Worktree, row: WorktreeRow | undefined): Worktree {
    const { projects } = this.ports;
    const name = found.branch || found.slug || found.path.slice(found.path.lastIndexOf('/') + 1);
    return {
      project_id: row?.worktreeId ?? null,
      name,
      branch: found.branch,
      path: found.slug === '' ? found.path : projects.pathOfWorktree({ parent, slug: found.slug }),
      managed: row !== undefined,
      is_worktree: true,
      parent_project_id: managedIdIn(parent) ?? parent,
      parent_path: projects.pathOf(parent),
      clean: found.clean,
      head: found.head,
    };
  }
}

/** Whether a run of the session is active there. */
function worksIn({ run, binding }: Head, { worktreeId }: WorktreeRow): boolean {
  return run !== null && (run.binding ?? binding).project === worktreeId;
}

function busy(worktreeId: string): Error {
  return new FailedPreconditionError('worktree_busy', `a run is active in ${worktreeId}; stop it first, or force it.`);
}

function notFound(named: string): Error {
  return new NotFoundError('project_not_found', `project ${named.slice(0, 64)} not found`);
}

const later = (ms: number): Date => new Date(Date.now() + ms);

const optionsOf = (tenantId: string, timeoutMs: number) => ({
  principal: systemPrincipal('session', tenantId),
  timeoutMs,
});

function unseenOf({ slug, branch }: WorktreeRow): executorPb.Worktree {
  return { slug, path: '', branch, head: '', clean: true };
}

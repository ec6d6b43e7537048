import type { ManagedProject, sessionsPb, Worktree } from '@margay/contracts';
import { errorOf, InvalidArgumentError, NotFoundError } from '@margay/errors';
import type { GrpcHandlers } from '@margay/platform';

type Handlers = Pick<
  GrpcHandlers<typeof sessionsPb.SessionsDefinition>,
  | 'listProjects'
  | 'createProject'
  | 'getProject'
  | 'updateProject'
  | 'deleteProject'
  | 'listBranches'
  | 'listWorktrees'
  | 'createWorktree'
  | 'deleteWorktree'
>;

/** The projects that session would keep: one of its own with worktrees, and one of the configuration. */
export class FakeProjects {
  readonly worktrees = new Map<string, Worktree>();
  readonly id = '7f9c1e02a35b4d6e8f0011223344aabb';

  handlers(): Handlers {
    return {
      listProjects: () => {
        const project = { name: 'shop', path: '/srv/shop', description: 'a shop', available: true, source: 'config' };
        return Promise.resolve({ projectsJson: [JSON.stringify(project)] });
      },
      createProject: async ({ name, description }, context) => {
        if (name === '') throw new InvalidArgumentError('bad_request', "Invalid input: 'name' is required");
        await Promise.resolve(context.principal());
        return { projectJson: JSON.stringify({ ...this.project, name, description }), replayed: false };
      },
      listWorktrees: async ({ project }) => {
        await this.answer(project);
        return { worktreesJson: [...this.worktrees.values()].map((made) => JSON.stringify(made)), stale: false };
      },
      createWorktree: async ({ project, branch }) => {
        await this.answer(project);
        if (branch === '') throw new InvalidArgumentError('bad_request', "Invalid input: 'branch' is required");
        if (branch === 'main') throw errorOf('ABORTED', 'branch_in_use', 'main is checked out already');
        const id = `wt:${project}:${branch}`;
        const replayed = this.worktrees.has(id);
        const path = `/workspace/.margay/worktrees/${branch}`;
        const kin = { is_worktree: true as const, parent_project_id: project, parent_path: '/workspace' };
        this.worktrees.set(id, { project_id: id, name: branch, branch, path, managed: true, ...kin, clean: true, head: '' }); // prettier-ignore
        return { worktreeJson: JSON.stringify(this.worktrees.get(id)), replayed };
      },
      deleteWorktree: async ({ project, worktreeId, force }) => {
        await this.answer(project);
        if (!worktreeId.startsWith(`wt:${project}:`)) throw new InvalidArgumentError('foreign_worktree', 'of another');
        if (worktreeId.endsWith('dirty') && !force)
          throw errorOf('FAILED_PRECONDITION', 'worktree_dirty', 'it has changes that are nowhere else');
        return { alreadyAbsent: !this.worktrees.delete(worktreeId) };
      },
      listBranches: async ({ project }) => {
        const isGit = project !== 'shop';
        if (isGit) await this.answer(project);
        const found = { branches: isGit ? ['main'] : [], currentBranch: '', branchesInUse: [], stale: false };
        return { isGit, ...found, reason: isGit ? '' : 'not_git' };
      },
      getProject: ({ projectId }) => this.answer(projectId),
      updateProject: ({ projectId, name, description }) =>
        this.answer(projectId, {
          ...(name === undefined ? {} : { name }),
          ...(description === undefined ? {} : { description }),
        }),
      deleteProject: async ({ projectId }) => {
        await this.answer(projectId);
        return {};
      },
    };
  }

  private get project(): ManagedProject {
    const times = { created_at: '2026-01-01T00:00:00.000000+00:00', updated_at: '2026-01-01T00:00:00.000000+00:00' };
    const told = { project_id: this.id, name: 'Shop', description: '', path: '/workspace', ...times };
    const kind = { path_source: 'auto' as const, folder_created: true, is_worktree: false };
    return { ...told, ...kind, parent_project_id: null, branch: null };
  }

  private async answer(projectId: string, change: object = {}): Promise<{ projectJson: string }> {
    if (projectId !== this.id) throw new NotFoundError('project_not_found', `project ${projectId} not found`);
    return { projectJson: JSON.stringify({ ...this.project, ...change }) };
  }
}

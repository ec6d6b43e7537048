import { stat } from 'node:fs/promises';
import { isAbsolute } from 'node:path';
import type { ManagedProject, RunGrant } from '@margay/contracts';
import { InvalidArgumentError, PermissionDeniedError } from '@margay/errors';
import { distance } from 'fastest-levenshtein';
import type { SessionConfig } from '../config';
import { bindingName, managedIdIn, type ManagedProjects } from './managed-projects';
import { aliasesIn, meantBy, type Named } from './project-names';
import type { Placed, Remote, Repositories } from './repositories';
import { parseWorktreeId, type WorktreeName } from './worktree-id';
import type { WorktreeRepository, WorktreeRow } from './worktree.repository';

export interface Binding {
  project: string | null;
  cwd: string | null;
}

/** A project as `GET /api/projects` shows it. */
export interface ProjectView {
  name: string;
  path: string;
  description: string;
  available: boolean;
  source: 'config' | 'managed';
  project_id?: string;
  is_worktree?: boolean;
  parent_project_id?: string | null;
  branch?: string | null;
  repo?: Remote;
  aliases?: string[];
}

type ProjectsConfig = Pick<SessionConfig, 'MARGAY_PROJECTS' | 'MARGAY_ALLOW_EXTERNAL_CWD'>;

export interface ProjectsPorts {
  managed: Pick<ManagedProjects, 'find' | 'list' | 'classOf'>;
  worktrees: Pick<WorktreeRepository, 'find' | 'list' | 'enter'>;
  repositories: Pick<Repositories, 'of'>;
}

/** Projects of the configuration and of the tenant, and which workspace a session's binding means. */
export class ProjectsService {
  constructor(
    private readonly config: ProjectsConfig,
    private readonly ports: ProjectsPorts,
  ) {}

  async list(tenantId: string): Promise<ProjectView[]> {
    const managed = await this.ports.managed.list(tenantId);
    const named = await this.named(tenantId, managed);
    const byProject = new Map(named.map((one) => [one.project, one]));
    const aliasesOf = aliasesIn(named);
    const repositoryOf = (project: string) => {
      const found = byProject.get(project);
      if (!found?.remote) return {};
      const aliases = aliasesOf(found);
      return { repo: found.remote, ...(aliases.length === 0 ? {} : { aliases }) };
    };
    const configured = Object.entries(this.config.MARGAY_PROJECTS).map(async ([name, { path, description }]) => ({
      ...{ name, path, description, available: await isFolder(path), source: 'config' as const },
      ...repositoryOf(name),
    }));
    const own = managed.map((project) => ({ ...viewOf(project), ...repositoryOf(bindingName(project.project_id)) }));
    const shown = new Set([...Object.keys(this.config.MARGAY_PROJECTS), ...own.map(({ project_id: id }) => `managed:${id}`)]); // prettier-ignore
    const worktrees = (await this.ports.worktrees.list(tenantId)).filter(
      ({ parent, state }) => state === 'live' && shown.has(parent),
    );
    return [...(await Promise.all(configured)), ...own, ...worktrees.map((row) => this.viewOfWorktree(row))];
  }

  /**
   * Checks what a request names as its workspace.
   * @throws InvalidArgumentError `unknown_project`, `cwd_invalid`; FailedPreconditionError `ambiguous_project`;
   *   PermissionDeniedError `cwd_forbidden`
   */
  async bind(tenantId: string, project: string, cwd: string): Promise<Binding> {
    if (cwd !== '') return { project: null, cwd: await this.externalFolder(cwd) };
    if (project === '' || project === 'auto') return { project: null, cwd: null };
    const found = await this.find(tenantId, project);
    if (found === undefined) throw new InvalidArgumentError('unknown_project', this.unknownProject(project));
    return { project: found, cwd: null };
  }

  /**
   * What a binding calls the project that a request names, in any form; undefined where there is none.
   * @throws FailedPreconditionError `ambiguous_project`
   */
  async find(tenantId: string, named: string): Promise<string | undefined> {
    if (named === '' || named === 'auto') return undefined;
    if (Object.hasOwn(this.config.MARGAY_PROJECTS, named)) return named;
    const id = await this.ports.managed.find(tenantId, named);
    if (id !== undefined) return bindingName(id);
    const worktree = parseWorktreeId(named);
    if (worktree) {
      const row = await this.ports.worktrees.find(tenantId, named);
      return row?.state === 'live' && (await this.find(tenantId, worktree.parent)) !== undefined ? named : undefined;
    }
    if (named.startsWith('managed:')) return undefined;
    return meantBy(named, await this.named(tenantId, await this.ports.managed.list(tenantId)))?.project;
  }

  /**
   * A session is about to start a run there: who removes a worktree asks the logs of all that were.
   * @returns whether it can be removed
   * @throws InvalidArgumentError `unknown_project` where it is being removed
   */
  async enter(tenantId: string, sessionId: string, binding: Binding): Promise<boolean> {
    const { project } = binding;
    if (project === null || !this.worktreeOf(binding)) return false;
    if (await this.ports.worktrees.enter(tenantId, project, sessionId)) return true;
    throw new InvalidArgumentError('unknown_project', this.unknownProject(project));
  }

  workspaceOf(binding: Binding): RunGrant['workspace'] {
    const { project, cwd } = binding;
    const worktree = this.worktreeOf(binding);
    if (worktree) {
      const of = this.workspaceOf({ project: worktree.parent, cwd: null });
      if (of.kind === 'project' || of.kind === 'path') return { kind: 'worktree', of, slug: worktree.slug };
    }
    const projectId = cwd === null && project !== null ? managedIdIn(project) : undefined;
    if (projectId !== undefined) return { kind: 'project', projectId };
    const path = cwd ?? (project === null ? undefined : this.config.MARGAY_PROJECTS[project]?.path);
    return path === undefined ? { kind: 'own' } : { kind: 'path', path };
  }

  /** Of sandboxes of sessions in it that name none; undefined: it says nothing. A worktree is as its project. */
  async classOf(tenantId: string, project: string): Promise<string | undefined> {
    const configured = this.config.MARGAY_PROJECTS[project];
    if (configured) return configured.sandboxClass;
    const shared = parseWorktreeId(project)?.parent ?? project;
    const id = managedIdIn(shared);
    return id === undefined
      ? this.config.MARGAY_PROJECTS[shared]?.sandboxClass
      : this.ports.managed.classOf(tenantId, id);
  }

  /** How people call a project that a binding names. */
  nameOf(project: string): string {
    return parseWorktreeId(project)?.slug ?? project;
  }

  /** Where sandboxes of a project, or people, find its files. */
  pathOf(project: string): string {
    return this.config.MARGAY_PROJECTS[project]?.path ?? INSIDE;
  }

  /** The same of a worktree. */
  pathOfWorktree({ parent, slug }: WorktreeName): string {
    return `${this.pathOf(parent)}/.margay/worktrees/${slug}`;
  }

  /** What a context says of the repository that a binding leads to, as far as it is known. */
  async repositoryOf(tenantId: string, project: string): Promise<{ repo?: string; branch?: string }> {
    const worktree = parseWorktreeId(project);
    const shared = worktree?.parent ?? project;
    const placed = { project: shared, workspace: this.workspaceOf({ project: shared, cwd: null }) };
    const found = (await this.ports.repositories.of(tenantId, [placed])).get(shared);
    const row = worktree && (await this.ports.worktrees.find(tenantId, project));
    const branch = row?.branch ?? found?.branch ?? '';
    return {
      ...(found?.remote ? { repo: `${found.remote.owner}/${found.remote.name}` } : {}),
      ...(branch === '' ? {} : { branch }),
    };
  }

  private worktreeOf({ project, cwd }: Binding): WorktreeName | undefined {
    if (project === null || cwd !== null || Object.hasOwn(this.config.MARGAY_PROJECTS, project)) return undefined;
    return parseWorktreeId(project);
  }

  private async named(tenantId: string, managed: readonly ManagedProject[]): Promise<Named[]> {
    const configured = Object.keys(this.config.MARGAY_PROJECTS).map((name) => ({ project: name, name }));
    const own = managed.map(({ project_id: id, name }) => ({ project: bindingName(id), name }));
    const all = [...configured, ...own];
    const placed: Placed[] = all.map(({ project }) => ({
      project,
      workspace: this.workspaceOf({ project, cwd: null }),
    }));
    const found = await this.ports.repositories.of(tenantId, placed);
    return all.map((one) => ({ ...one, remote: found.get(one.project)?.remote }));
  }

  private viewOfWorktree(row: WorktreeRow): ProjectView {
    const { worktreeId, parent, branch } = row;
    const shown = { name: branch, path: this.pathOfWorktree(row), description: '', available: true };
    const parentId = managedIdIn(parent) ?? parent;
    const kin = { project_id: worktreeId, is_worktree: true, parent_project_id: parentId, branch };
    return { ...shown, source: 'managed', ...kin };
  }

  private async externalFolder(cwd: string): Promise<string> {
    if (!this.config.MARGAY_ALLOW_EXTERNAL_CWD)
      throw new PermissionDeniedError(
        'cwd_forbidden',
        'this installation does not take host folders as `cwd`; name a project',
      );
    if (!isAbsolute(cwd) || !(await isFolder(cwd)))
      throw new InvalidArgumentError(
        'cwd_invalid',
        `'cwd' must name an existing folder by its absolute path, not ${cwd}`,
      );
    return cwd;
  }

  private unknownProject(project: string): string {
    const names = Object.keys(this.config.MARGAY_PROJECTS);
    const nearest = names.toSorted((a, b) => distance(a, project) - distance(b, project))[0];
    return `unknown project '${project}'${nearest === undefined ? '' : `; did you mean '${nearest}'?`}`;
  }
}

/** Where sandboxes show a workspace. */
const INSIDE = '/workspace';

function viewOf({ name, path, description, ...record }: ManagedProject): ProjectView {
  const { project_id, is_worktree, parent_project_id, branch } = record;
  const shown = { name, path, description, available: true, source: 'managed' as const };
  return { ...shown, project_id, is_worktree, parent_project_id, branch };
}

async function isFolder(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  return found?.isDirectory() ?? false;
}

import { stat } from 'node:fs/promises';
import { isAbsolute } from 'node:path';
import type { ManagedProject, RunGrant } from '@margay/contracts';
import { InvalidArgumentError, PermissionDeniedError } from '@margay/errors';
import { distance } from 'fastest-levenshtein';
import type { SessionConfig } from '../config';
import { bindingName, managedIdIn, type ManagedProjects } from './managed-projects';

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
}

type ProjectsConfig = Pick<SessionConfig, 'MARGAY_PROJECTS' | 'MARGAY_ALLOW_EXTERNAL_CWD'>;

/** Projects of the configuration and of the tenant, and which workspace a session's binding means. */
export class ProjectsService {
  constructor(
    private readonly config: ProjectsConfig,
    private readonly managed: Pick<ManagedProjects, 'find' | 'list'>,
  ) {}

  async list(tenantId: string): Promise<ProjectView[]> {
    const managed = (await this.managed.list(tenantId)).map(viewOf);
    const entries = Object.entries(this.config.MARGAY_PROJECTS);
    const configured = await Promise.all(
      entries.map(async ([name, { path, description }]) => ({
        name,
        path,
        description,
        available: await isFolder(path),
        source: 'config' as const,
      })),
    );
    return [...configured, ...managed];
  }

  /**
   * Checks what a request names as its workspace.
   * @throws InvalidArgumentError `unknown_project`, `cwd_invalid`; PermissionDeniedError `cwd_forbidden`
   */
  async bind(tenantId: string, project: string, cwd: string): Promise<Binding> {
    if (cwd !== '') return { project: null, cwd: await this.externalFolder(cwd) };
    if (project === '' || project === 'auto') return { project: null, cwd: null };
    const found = await this.find(tenantId, project);
    if (found === undefined) throw new InvalidArgumentError('unknown_project', this.unknownProject(project));
    return { project: found, cwd: null };
  }

  /** What a binding calls the project that a request names; undefined where there is none. */
  async find(tenantId: string, named: string): Promise<string | undefined> {
    if (Object.hasOwn(this.config.MARGAY_PROJECTS, named)) return named;
    const id = await this.managed.find(tenantId, named);
    return id === undefined ? undefined : bindingName(id);
  }

  workspaceOf({ project, cwd }: Binding): RunGrant['workspace'] {
    const projectId = cwd === null && project !== null ? managedIdIn(project) : undefined;
    if (projectId !== undefined) return { kind: 'project', projectId };
    const path = cwd ?? (project === null ? undefined : this.config.MARGAY_PROJECTS[project]?.path);
    return path === undefined ? { kind: 'own' } : { kind: 'path', path };
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

function viewOf({ name, path, description, ...record }: ManagedProject): ProjectView {
  const { project_id, is_worktree, parent_project_id, branch } = record;
  const shown = { name, path, description, available: true, source: 'managed' as const };
  return { ...shown, project_id, is_worktree, parent_project_id, branch };
}

async function isFolder(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  return found?.isDirectory() ?? false;
}

import { stat } from 'node:fs/promises';
import { isAbsolute } from 'node:path';
import type { RunGrant } from '@margay/contracts';
import { InvalidArgumentError, PermissionDeniedError } from '@margay/errors';
import { distance } from 'fastest-levenshtein';
import type { SessionConfig } from '../config';

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
  source: 'config';
}

type ProjectsConfig = Pick<SessionConfig, 'MARGAY_PROJECTS' | 'MARGAY_ALLOW_EXTERNAL_CWD'>;

/** Projects of the configuration, and which workspace a session's binding means. */
export class ProjectsService {
  constructor(private readonly config: ProjectsConfig) {}

  list(): Promise<ProjectView[]> {
    const entries = Object.entries(this.config.MARGAY_PROJECTS);
    return Promise.all(
      entries.map(async ([name, { path, description }]) => ({
        name,
        path,
        description,
        available: await isFolder(path),
        source: 'config' as const,
      })),
    );
  }

  /**
   * Checks what a request names as its workspace.
   * @throws InvalidArgumentError `unknown_project`, `cwd_invalid`; PermissionDeniedError `cwd_forbidden`
   */
  async bind(project: string, cwd: string): Promise<Binding> {
    if (cwd !== '') return { project: null, cwd: await this.externalFolder(cwd) };
    if (project === '' || project === 'auto') return { project: null, cwd: null };
    if (!this.has(project)) throw new InvalidArgumentError('unknown_project', this.unknownProject(project));
    return { project, cwd: null };
  }

  has(project: string): boolean {
    return Object.hasOwn(this.config.MARGAY_PROJECTS, project);
  }

  workspaceOf({ project, cwd }: Binding): RunGrant['workspace'] {
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

async function isFolder(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => undefined);
  return found?.isDirectory() ?? false;
}

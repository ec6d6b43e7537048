import type { executorPb, RunGrant } from '@margay/contracts';
import { systemPrincipal, type GrpcClient, type Logger } from '@margay/platform';

type Executor = Pick<GrpcClient<typeof executorPb.ExecutorDefinition>, 'describeWorkspaces'>;

/** Where a repository is shared with others. */
export interface Remote {
  host: string;
  owner: string;
  name: string;
}

export interface Repository {
  remote?: Remote;
  /** Empty where none is checked out, or nothing is known. */
  branch: string;
}

export interface Placed {
  /** How bindings name the project. */
  project: string;
  workspace: RunGrant['workspace'];
}

const CACHE_MS = 2_000;
const ASK_TIMEOUT_MS = 3_000;
const TENANTS_MAX = 1_000;
const AT_ONCE = 600;

/** What the indexes of workspaces say of their repositories; asked for all projects of a tenant at once. */
export class Repositories {
  private readonly cached = new Map<string, { untilMs: number; found: Map<string, Repository> }>();

  constructor(
    private readonly executor: Executor,
    private readonly logger: Logger,
  ) {}

  /** By the names of projects; empty where tool-executor is away: what it knows is a help, not a need. */
  async of(tenantId: string, placed: readonly Placed[]): Promise<Map<string, Repository>> {
    const known = this.cached.get(tenantId);
    if (known && known.untilMs > performance.now() && placed.every(({ project }) => known.found.has(project)))
      return known.found;
    try {
      const found = await this.ask(tenantId, placed.slice(0, AT_ONCE));
      if (this.cached.size >= TENANTS_MAX) this.cached.clear();
      this.cached.set(tenantId, { untilMs: performance.now() + CACHE_MS, found });
      return found;
    } catch (error) {
      this.logger.warn({ err: error, tenantId }, 'tool-executor could not be asked for the repositories of projects');
      return new Map();
    }
  }

  private async ask(tenantId: string, placed: readonly Placed[]): Promise<Map<string, Repository>> {
    if (placed.length === 0) return new Map();
    const workspacesJson = placed.map(({ workspace }) => JSON.stringify(workspace));
    const options = { principal: systemPrincipal('session', tenantId), timeoutMs: ASK_TIMEOUT_MS };
    const { workspaces } = await this.executor.describeWorkspaces({ workspacesJson }, options);
    return new Map(placed.map(({ project }, index) => [project, repositoryOf(workspaces[index])]));
  }
}

function repositoryOf(found: executorPb.WorkspaceDescription | undefined): Repository {
  const branch = found?.currentBranch ?? '';
  if (!found || found.remoteName === '') return { branch };
  return { branch, remote: { host: found.remoteHost, owner: found.remoteOwner, name: found.remoteName } };
}

import type { executorPb, Principal, sessionsPb } from '@margay/contracts';
import { isMargayError, NotFoundError } from '@margay/errors';
import { bindingOf, type Head } from '@margay/log';
import { systemPrincipal, type GrpcClient } from '@margay/platform';
import { requireAccess } from '../access/access-rules';
import type { AttachmentsService } from '../attachments/attachments.service';
import type { SessionLog } from '../commits/session-log';
import type { ProjectsService } from './projects.service';
import { parseWorktreeId } from './worktree-id';

type Executor = Pick<GrpcClient<typeof executorPb.ExecutorDefinition>, 'listFiles' | 'listBranches'>;

const ASK_TIMEOUT_MS = 15_000;
const MISSING = {
  isGit: false,
  branches: [],
  currentBranch: '',
  branchesInUse: [],
  stale: false,
  reason: 'missing_path',
};
const NOTHING = { files: [], attachments: [], stale: false, truncated: false };

export interface FilesPorts {
  log: SessionLog;
  projects: ProjectsService;
  attachments: Pick<AttachmentsService, 'names'>;
  executor: Executor;
}

/** Paths for completion: whose workspace it is is decided here, what lies in it is known to tool-executor. */
export class FilesService {
  constructor(private readonly ports: FilesPorts) {}

  async list(principal: Principal, request: sessionsPb.ListFilesRequest): Promise<sessionsPb.ListFilesResponse> {
    const { sessionId, project, query, limit } = request;
    const head = sessionId === '' ? undefined : await this.headOf(principal, sessionId);
    const binding = head && isBound(head) ? bindingOf(head) : await this.bindingOf(principal.tenantId, project);
    if (!head && !binding) return NOTHING;
    const attachments = head ? await this.ports.attachments.names(head.tenantId, head.sessionId) : [];
    const workspace = this.ports.projects.workspaceOf(binding ?? { project: null, cwd: null });
    const asked = { sessionId, workspaceJson: JSON.stringify(workspace), query, limit };
    const options = { principal: systemPrincipal('session', principal.tenantId), timeoutMs: ASK_TIMEOUT_MS };
    const { files, stale, truncated } = await this.ports.executor.listFiles(asked, options);
    const wanted = query.toLowerCase();
    return { files, attachments: attachments.filter((name) => name.toLowerCase().includes(wanted)), stale, truncated };
  }

  /** @throws NotFoundError `project_not_found` */
  async branches({ tenantId }: Principal, named: string): Promise<sessionsPb.ListBranchesResponse> {
    const found = await this.bindingOf(tenantId, named);
    // A worktree has the repository of its project; only what it has checked out is its own.
    const worktree = parseWorktreeId(found?.project ?? '');
    const binding = worktree ? { project: worktree.parent, cwd: null } : found;
    if (!binding) throw new NotFoundError('project_not_found', `project ${named.slice(0, 64)} not found`);
    const asked = { workspaceJson: JSON.stringify(this.ports.projects.workspaceOf(binding)) };
    const options = { principal: systemPrincipal('session', tenantId), timeoutMs: ASK_TIMEOUT_MS };
    try {
      const repository = await this.ports.executor.listBranches(asked, options);
      return { ...repository, reason: repository.isGit ? '' : 'not_git' };
    } catch (error) {
      if (isMargayError(error) && error.reason === 'workspace_missing') return MISSING;
      throw error;
    }
  }

  private async headOf(principal: Principal, sessionId: string): Promise<Head> {
    const head = await this.ports.log.recentHead(sessionId);
    requireAccess(principal, head);
    return head;
  }

  /** Unknown projects have no files. */
  private async bindingOf(tenantId: string, named: string): Promise<Head['binding'] | undefined> {
    const project = await this.ports.projects.find(tenantId, named);
    return project === undefined ? undefined : { project, cwd: null };
  }
}

function isBound(head: Head): boolean {
  const binding = bindingOf(head);
  return binding.project !== null || binding.cwd !== null;
}

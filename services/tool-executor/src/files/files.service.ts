import { createHash } from 'node:crypto';
import { RunGrant, type executorPb } from '@margay/contracts';
import { InvalidArgumentError, isMargayError, UnavailableError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import type { LiveSandbox } from '../sandbox/sandbox-claims';
import type { SandboxRegistry } from '../sandbox/sandbox-registry';
import { matchFiles } from './match-files';
import { WorkspaceIndex, type IndexedFiles } from './workspace-index';

type Workspace = RunGrant['workspace'];

const LIST_MAX = 2_000;
const LOOK_TIMEOUT_MS = 12_000;
const PLACE_TIMEOUT_MS = 30_000;

/** What people and completion want of a workspace beside tool calls. */
export class FilesService {
  private readonly index: WorkspaceIndex;

  constructor(
    private readonly registry: SandboxRegistry,
    logger: Logger,
  ) {
    this.index = new WorkspaceIndex({
      now: () => performance.now(),
      onFailure: (workspace, error) => logger.warn({ err: error, workspace }, 'a workspace could not be listed'),
    });
  }

  /** A piece of an attached file, into the sandbox in which the run's calls are made. */
  async place(
    request: executorPb.PlaceAttachmentRequest,
    grant: RunGrant,
  ): Promise<executorPb.PlaceAttachmentResponse> {
    const sandbox = await this.registry.obtain(grant);
    const end = this.registry.use(sandbox);
    try {
      const token = await this.registry.tokenFor(sandbox, grant);
      return await sandbox.connection.client.placeAttachment(request, { grant: token, timeoutMs: PLACE_TIMEOUT_MS });
    } catch (error) {
      // It is gone, or wedged: the next piece claims again.
      if (isMargayError(error) && error.code === 'UNAVAILABLE') this.registry.forsake(sandbox);
      throw error;
    } finally {
      end();
    }
  }

  /** Paths of the session's workspace, or of one without a session. */
  async list(tenantId: string, request: executorPb.ListFilesRequest): Promise<executorPb.ListFilesResponse> {
    const found = await this.indexed(tenantId, request.sessionId, workspaceOf(request.workspaceJson));
    if (!found) return { files: [], stale: false, truncated: false };
    const matching = matchFiles(found.files, request.query);
    const limit = Math.min(request.limit || LIST_MAX, LIST_MAX);
    const truncated = found.truncated || matching.length > limit;
    return { files: matching.slice(0, limit), stale: found.stale, truncated };
  }

  /** @throws UnavailableError `workspace_starting` where nobody has looked there yet */
  async branches(tenantId: string, request: executorPb.ListBranchesRequest): Promise<executorPb.ListBranchesResponse> {
    const found = await this.indexed(tenantId, '', workspaceOf(request.workspaceJson));
    if (!found?.isKnown)
      throw new UnavailableError('workspace_starting', 'The workspace is being looked into; ask again in a moment.');
    const { isGit, branches, currentBranch, branchesInUse, stale } = found;
    return { isGit, branches: [...branches], currentBranch, branchesInUse: [...branchesInUse], stale };
  }

  /** Undefined: there is no workspace yet. */
  private async indexed(tenantId: string, sessionId: string, workspace: Workspace) {
    const key = keyOf(tenantId, sessionId, workspace);
    const sandbox = sessionId === '' ? undefined : this.registry.find(tenantId, sessionId);
    const isOwn = workspace.kind === 'own';
    // A session that never had a sandbox has no files, and none is made to find that out.
    const grant = isOwn && !sandbox ? await this.registry.lastGrant(tenantId, sessionId, workspace) : undefined;
    if (isOwn && !sandbox && !grant) return undefined;
    const look = sandbox
      ? () => this.lookInto(sandbox)
      : () => this.lookBriefly(grant ?? utilityGrant(tenantId, key, workspace));
    return this.index.get(key, { look, isLive: sandbox !== undefined });
  }

  /** With a sandbox that lives for this look only, unless it belongs to the session. */
  private async lookBriefly(grant: RunGrant): Promise<IndexedFiles> {
    const sandbox = await this.registry.obtain(grant);
    try {
      return await this.lookInto(sandbox);
    } finally {
      if (grant.workspace.kind !== 'own') await this.registry.release(grant.tenantId, grant.sessionId);
    }
  }

  private async lookInto(sandbox: LiveSandbox): Promise<IndexedFiles> {
    const end = this.registry.use(sandbox);
    try {
      const token = await this.registry.ownerToken(sandbox);
      return await sandbox.connection.client.listFiles({ limit: 0 }, { grant: token, timeoutMs: LOOK_TIMEOUT_MS });
    } finally {
      end();
    }
  }
}

function workspaceOf(json: string): Workspace {
  const parsed = RunGrant.shape.workspace.safeParse(JSON.parse(json));
  if (parsed.success) return parsed.data;
  throw new InvalidArgumentError('bad_workspace', 'The workspace is none that a run could have.');
}

/** Sessions of a project share its list; a session without one has its own. */
function keyOf(tenantId: string, sessionId: string, workspace: Workspace): string {
  const shared = workspace.kind === 'project' ? workspace.projectId : workspace.kind === 'path' && workspace.path;
  return shared === false ? `${tenantId} s/${sessionId}` : `${tenantId} p/${shared}`;
}

/** For work without a session; its id is that of nobody (cluster §2.3). */
function utilityGrant(tenantId: string, key: string, workspace: Workspace): RunGrant {
  const sessionId = `u${createHash('sha256').update(key).digest('hex').slice(0, 31)}`;
  const principal = 'system:tool-executor';
  return { v: 1, tenantId, sessionId, runId: '', epoch: 1, storeGeneration: 0, principal, workspace };
}

import type { executorPb, RunGrant } from '@margay/contracts';
import { isMargayError, UnavailableError } from '@margay/errors';
import { workspaceIdOf, workspaceKeyOf, type ClaimWorkspace } from '../driver/workspace-key';
import type { LiveSandbox } from '../sandbox/sandbox-claims';
import type { SandboxRegistry } from '../sandbox/sandbox-registry';
import type { UtilitySandboxes } from '../utility/utility-sandboxes';
import type { IndexContent, IndexHead } from './index-store';
import { matchFiles } from './match-files';
import type { Found, WorkspaceIndex } from './workspace-index';
import { sharedWorkspaceOf, workspaceOf, type Workspace } from './workspace-of';

const LIST_MAX = 2_000;
const DESCRIBED_MAX = 1_000;
const LOOK_TIMEOUT_MS = 12_000;
const PLACE_TIMEOUT_MS = 30_000;
const EXPAND_TIMEOUT_MS = 20_000;

export interface FilesParts {
  registry: SandboxRegistry;
  utility: Pick<UtilitySandboxes, 'use'>;
  index: WorkspaceIndex;
}

/** What people and completion want of a workspace beside tool calls. */
export class FilesService {
  constructor(private readonly parts: FilesParts) {}

  /** A piece of an attached file, into the sandbox in which the run's calls are made. */
  place(request: executorPb.PlaceAttachmentRequest, grant: RunGrant): Promise<executorPb.PlaceAttachmentResponse> {
    return this.inSandboxOf(grant, (client, token) =>
      client.placeAttachment(request, { grant: token, timeoutMs: PLACE_TIMEOUT_MS }),
    );
  }

  /** What somebody said, with what its references lead to in the workspace of the run. */
  expand(request: executorPb.ExpandReferencesRequest, grant: RunGrant): Promise<executorPb.ExpandReferencesResponse> {
    return this.inSandboxOf(grant, (client, token) =>
      client.expandReferences(request, { grant: token, timeoutMs: EXPAND_TIMEOUT_MS }),
    );
  }

  private async inSandboxOf<T>(
    grant: RunGrant,
    work: (client: LiveSandbox['connection']['client'], token: string) => Promise<T>,
  ): Promise<T> {
    const { registry } = this.parts;
    const sandbox = await registry.obtain(grant);
    const end = registry.use(sandbox);
    try {
      return await work(sandbox.connection.client, await registry.tokenFor(sandbox, grant));
    } catch (error) {
      // It is gone, or wedged: the next piece claims again.
      if (isMargayError(error) && error.code === 'UNAVAILABLE') registry.forsake(sandbox);
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
    const truncated = (found.content?.truncated ?? false) || matching.length > limit;
    return { files: matching.slice(0, limit), stale: found.stale, truncated };
  }

  /** @throws UnavailableError `workspace_starting` where nobody has looked there yet */
  async branches(tenantId: string, request: executorPb.ListBranchesRequest): Promise<executorPb.ListBranchesResponse> {
    const { content, stale } = await this.known(tenantId, request.workspaceJson);
    const { isGit, branches, currentBranch, branchesInUse } = content;
    return { isGit, branches, currentBranch, branchesInUse, stale };
  }

  /** @throws UnavailableError `workspace_starting` where nobody has looked there yet */
  async worktrees(
    tenantId: string,
    request: executorPb.ListWorktreesRequest,
  ): Promise<executorPb.ListWorktreesResponse> {
    const { content, stale } = await this.known(tenantId, request.workspaceJson);
    return { isGit: content.isGit, worktrees: content.worktrees, stale };
  }

  /** What is known already; nothing is looked into for it. */
  async describe(
    tenantId: string,
    request: executorPb.DescribeWorkspacesRequest,
  ): Promise<executorPb.DescribeWorkspacesResponse> {
    const ids = request.workspacesJson.slice(0, DESCRIBED_MAX).map((json) => idOf(tenantId, '', workspaceOf(json)));
    const heads = await this.parts.index.heads(tenantId, ids);
    return { workspaces: ids.map((id) => describe(heads.get(id)?.content)) };
  }

  private async known(tenantId: string, json: string): Promise<Found & { content: IndexHead['content'] }> {
    const found = await this.indexed(tenantId, '', sharedWorkspaceOf(json));
    if (found?.content) return { ...found, content: found.content };
    throw new UnavailableError('workspace_starting', 'The workspace is being looked into; ask again in a moment.');
  }

  /** Undefined: there is no workspace yet. */
  private async indexed(tenantId: string, sessionId: string, workspace: Workspace): Promise<Found | undefined> {
    const { registry, index } = this.parts;
    const key = workspaceKeyOf({ sessionId, workspace });
    const sandbox = registry.findIn(tenantId, key);
    // A session that never had a sandbox has no files, and none is made to find that out.
    const isAbsent = workspace.kind === 'own' && !sandbox && !(await registry.hadSandbox(tenantId, sessionId));
    if (isAbsent) return undefined;
    const look = sandbox
      ? () => this.lookInto(sandbox)
      : () => this.lookBriefly(tenantId, workspace.kind === 'own' ? { kind: 'session', sessionId } : workspace);
    return index.get({ tenantId, workspaceId: workspaceIdOf(tenantId, key) }, { look, isLive: sandbox !== undefined });
  }

  /** With a sandbox of nobody's. */
  private lookBriefly(tenantId: string, workspace: Exclude<ClaimWorkspace, { kind: 'own' }>): Promise<IndexContent> {
    return this.parts.utility.use({ tenantId, workspace }, async ({ client, token }) =>
      client.listFiles({ limit: 0 }, { grant: await token(), timeoutMs: LOOK_TIMEOUT_MS }),
    );
  }

  private async lookInto(sandbox: LiveSandbox): Promise<IndexContent> {
    const { registry } = this.parts;
    const end = registry.use(sandbox);
    try {
      const token = await registry.ownerToken(sandbox);
      return await sandbox.connection.client.listFiles({ limit: 0 }, { grant: token, timeoutMs: LOOK_TIMEOUT_MS });
    } finally {
      end();
    }
  }
}

function idOf(tenantId: string, sessionId: string, workspace: Workspace): string {
  return workspaceIdOf(tenantId, workspaceKeyOf({ sessionId, workspace }));
}

function describe(content: IndexHead['content'] | undefined): executorPb.WorkspaceDescription {
  return {
    isKnown: content !== undefined,
    isGit: content?.isGit ?? false,
    currentBranch: content?.currentBranch ?? '',
    remoteHost: content?.remoteHost ?? '',
    remoteOwner: content?.remoteOwner ?? '',
    remoteName: content?.remoteName ?? '',
  };
}

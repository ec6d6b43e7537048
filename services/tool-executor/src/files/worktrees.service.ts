import type { executorPb } from '@margay/contracts';
import type { Logger } from '@margay/platform';
import { workspaceIdOf, workspaceKeyOf } from '../driver/workspace-key';
import type { UtilitySandbox, UtilitySandboxes } from '../utility/utility-sandboxes';
import type { WorkspaceIndex } from './workspace-index';
import { sharedWorkspaceOf, type Workspace } from './workspace-of';

const GIT_TIMEOUT_MS = 35_000;
const LOOK_TIMEOUT_MS = 12_000;

export interface WorktreesParts {
  utility: Pick<UtilitySandboxes, 'use'>;
  index: Pick<WorkspaceIndex, 'save'>;
  /** Removes the record of a worktree's workspace; absent where none are kept. */
  forgetPart?: ((part: { tenantId: string; _id: string }) => Promise<void>) | undefined;
  logger: Logger;
}

/** Working trees of a project's repository; git works in a sandbox on the project's workspace. */
export class WorktreesService {
  constructor(private readonly parts: WorktreesParts) {}

  /** @throws UnavailableError `workspace_starting`; what `Worktrees` of sandboxd throws */
  add(tenantId: string, request: executorPb.AddWorktreeRequest): Promise<executorPb.AddWorktreeResponse> {
    const { slug, branch, base } = request;
    return this.change(tenantId, request.workspaceJson, async ({ client, token }) => {
      const options = { grant: await token(), timeoutMs: GIT_TIMEOUT_MS };
      return client.addWorktree({ slug, branch, base }, options);
    });
  }

  async remove(
    tenantId: string,
    request: executorPb.RemoveWorktreeRequest,
  ): Promise<executorPb.RemoveWorktreeResponse> {
    const { slug, force, deleteBranch } = request;
    const removed = await this.change(tenantId, request.workspaceJson, async ({ client, token }) => {
      const options = { grant: await token(), timeoutMs: GIT_TIMEOUT_MS };
      return client.removeWorktree({ slug, force, deleteBranch }, options);
    });
    await this.parts.forgetPart?.({ tenantId, _id: worktreeIdOf(tenantId, request) });
    return removed;
  }

  private change<T>(tenantId: string, json: string, work: (sandbox: UtilitySandbox) => Promise<T>): Promise<T> {
    const workspace = sharedWorkspaceOf(json);
    return this.parts.utility.use({ tenantId, workspace }, async (sandbox) => {
      const done = await work(sandbox);
      await this.note(tenantId, workspace, sandbox);
      return done;
    });
  }

  /** Whoever lists next finds it in the index. */
  private async note(tenantId: string, workspace: Workspace, { client, token }: UtilitySandbox): Promise<void> {
    const workspaceId = workspaceIdOf(tenantId, workspaceKeyOf({ sessionId: '', workspace }));
    const beganAtMs = Date.now();
    try {
      const found = await client.listFiles({ limit: 0 }, { grant: await token(), timeoutMs: LOOK_TIMEOUT_MS });
      await this.parts.index.save({ tenantId, workspaceId }, found, beganAtMs);
    } catch (error) {
      // What was asked for is done; the index comes by itself.
      this.parts.logger.warn({ err: error, workspaceId }, 'a workspace could not be listed');
    }
  }
}

function worktreeIdOf(tenantId: string, request: executorPb.RemoveWorktreeRequest): string {
  const of = sharedWorkspaceOf(request.workspaceJson);
  const workspace = { kind: 'worktree', of: of.kind === 'worktree' ? of.of : of, slug: request.slug } as const;
  return workspaceIdOf(tenantId, workspaceKeyOf({ sessionId: '', workspace }));
}

import type { SandboxView, workspacesPb, WorkspaceView } from '@margay/contracts';
import { AbortedError, NotFoundError } from '@margay/errors';
import type { CallContext, GrpcHandlers } from '@margay/platform';

/** The workspaces that tool-executor would keep: one, of the tenant `default`, and a sandbox on it. */
export class FakeWorkspaces {
  readonly asked: { method: string; request: object; principal: string }[] = [];
  /** What uploads brought. */
  readonly uploads: { filename: string; replace: boolean; bytes: number }[] = [];
  readonly workspaceId = '3c8e5f0a9d2b47e6a1b2c3d4e5f60718';
  readonly sandboxId = '5f2b8c0d1e3a4f6b7c8d';
  /** Whose the sandbox is. */
  sandboxSession = '';
  /** Whose the others are that are listed. */
  otherSessions: string[] = [];

  handlers(): GrpcHandlers<workspacesPb.WorkspacesDefinition> {
    const refuse = () => Promise.reject(new Error('not part of these specs'));
    const noted =
      <Q extends object, S>(method: string, answer: (request: Q) => S) =>
      async (request: Q, context: CallContext): Promise<S> => {
        this.note(method, request, context);
        return answer(request);
      };
    const one = ({ workspaceId }: { workspaceId: string }) => ({
      workspaceJson: JSON.stringify(this.view(workspaceId)),
    });
    const matching = (request: { workspaceId: string; ifMatch: string }) => {
      if (!['', '"3"'].includes(request.ifMatch)) throw new AbortedError('rev_moved', 'it is at another revision');
      return one(request);
    };
    const sandboxOf = ({ sandboxId }: { sandboxId: string }): SandboxView => {
      if (sandboxId !== this.sandboxId) throw new NotFoundError('sandbox_not_found', `sandbox ${sandboxId} not found`);
      return this.sandbox();
    };
    return {
      declare: refuse,
      retire: refuse,
      list: noted('list', () => ({ workspacesJson: [JSON.stringify(this.view(this.workspaceId))], nextCursor: '' })),
      get: noted('get', one),
      update: noted('update', matching),
      delete: noted('delete', matching),
      setContent: noted('setContent', one),
      upload: async (stream: AsyncIterable<workspacesPb.UploadRequest>) => {
        let first: workspacesPb.UploadRequest | undefined;
        let bytes = 0;
        for await (const message of stream) {
          first ??= message;
          bytes += message.content.length;
        }
        const { workspaceId = '', filename = '', replace = false } = first ?? {};
        this.uploads.push({ filename, replace, bytes });
        return one({ workspaceId });
      },
      listSandboxes: noted('listSandboxes', () => {
        const others = this.otherSessions.map((id, n) => ({
          ...this.sandbox(),
          sandbox_id: `other${n}`,
          session_id: id,
        }));
        return { sandboxesJson: [this.sandbox(), ...others].map((sandbox) => JSON.stringify(sandbox)) };
      }),
      getSandbox: noted('getSandbox', (request) => ({ sandboxJson: JSON.stringify(sandboxOf(request)) })),
      endSandbox: noted('endSandbox', (request) => {
        sandboxOf(request);
        return {};
      }),
    };
  }

  private note(method: string, request: object, context: CallContext): void {
    this.asked.push({ method, request, principal: context.principal().principal });
  }

  private view(workspaceId: string): WorkspaceView {
    if (workspaceId !== this.workspaceId)
      throw new NotFoundError('workspace_not_found', `workspace ${workspaceId.slice(0, 64)} not found`);
    const at = '2026-01-01T00:00:00.000000+00:00';
    const told = { reason: null, message: null, head: null };
    return {
      workspace_id: workspaceId,
      kind: 'project',
      belongs_to: '7f9c1e02a35b4d6e8f0011223344aabb',
      owner: 'user:ada',
      class: 'default',
      storage: 'volume',
      state: 'new',
      content: { kind: 'empty', source: {}, status: 'ready', ...told },
      created_at: at,
      last_used_at: at,
      expires_at: null,
      legal_hold: false,
      rev: 3,
    };
  }

  private sandbox(): SandboxView {
    return {
      sandbox_id: this.sandboxId,
      session_id: this.sandboxSession,
      workspace_id: this.workspaceId,
      class: 'default',
      driver: 'process',
      state: 'ready',
      last_active_at: null,
      reason: null,
    };
  }
}

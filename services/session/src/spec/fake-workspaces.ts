import type { workspacesPb } from '@margay/contracts';
import { InvalidArgumentError, UnavailableError, UnimplementedError } from '@margay/errors';
import type { CallContext, GrpcHandlers } from '@margay/platform';

/** For specs: what session asks of the workspaces that tool-executor keeps. */
export class FakeWorkspaces {
  readonly declared: workspacesPb.DeclareRequest[] = [];
  /** `<tenant>/<project>` */
  readonly retired: string[] = [];
  isUp = true;
  keepsRecords = true;

  handlers(): GrpcHandlers<workspacesPb.WorkspacesDefinition> {
    const refuse = () => Promise.reject(new Error('not part of this spec'));
    const others = { list: refuse, get: refuse, update: refuse, delete: refuse, setContent: refuse, upload: refuse };
    return {
      ...others,
      listSandboxes: refuse,
      getSandbox: refuse,
      endSandbox: refuse,
      declare: async (request) => {
        this.requireUp();
        if (request.sourceJson.includes('"unknown"'))
          throw new InvalidArgumentError('unknown_template', "There is no template 'unknown'.");
        this.declared.push(request);
        return { workspaceId: `w${request.projectId.slice(1)}` };
      },
      retire: async ({ projectId }, context: CallContext) => {
        this.requireUp();
        this.retired.push(`${context.principal().tenantId}/${projectId}`);
        return {};
      },
    };
  }

  private requireUp(): void {
    if (!this.isUp) throw new UnavailableError('away', 'tool-executor is away');
    if (!this.keepsRecords) throw new UnimplementedError('workspaces_unavailable', 'no records');
  }
}

import type { Principal, workspacesPb } from '@margay/contracts';
import { InvalidArgumentError, PermissionDeniedError, UnimplementedError } from '@margay/errors';
import type { CallContext, GrpcHandlers } from '@margay/platform';
import type { WorkspacesService } from './workspaces.service';

type Handlers = GrpcHandlers<workspacesPb.WorkspacesDefinition>;

/** People come by the gateway, as themselves; session on its own behalf. */
export class WorkspacesGrpc implements Handlers {
  constructor(private readonly opened: WorkspacesService | undefined) {}

  async declare(
    { projectId, owner, sourceJson }: workspacesPb.DeclareRequest,
    context: CallContext,
  ): Promise<workspacesPb.DeclareResponse> {
    const tenantId = tenantOfSession(context);
    return { workspaceId: await this.workspaces.declare(tenantId, projectId, owner, jsonOf(sourceJson)) };
  }

  async retire({ projectId }: workspacesPb.RetireRequest, context: CallContext): Promise<workspacesPb.RetireResponse> {
    await this.workspaces.retire(tenantOfSession(context), projectId);
    return {};
  }

  async list(request: workspacesPb.ListRequest, context: CallContext): Promise<workspacesPb.ListResponse> {
    const { workspaces, nextCursor } = await this.workspaces.list(callerOf(context), request);
    return { workspacesJson: workspaces.map((one) => JSON.stringify(one)), nextCursor };
  }

  async get({ workspaceId }: workspacesPb.GetRequest, context: CallContext): Promise<workspacesPb.GetResponse> {
    return told(await this.workspaces.get(callerOf(context), workspaceId));
  }

  async update(request: workspacesPb.UpdateRequest, context: CallContext): Promise<workspacesPb.UpdateResponse> {
    return told(await this.workspaces.update(callerOf(context), request.workspaceId, request));
  }

  async delete(
    { workspaceId, ifMatch }: workspacesPb.DeleteRequest,
    context: CallContext,
  ): Promise<workspacesPb.DeleteResponse> {
    return told(await this.workspaces.delete(callerOf(context), workspaceId, ifMatch));
  }

  async setContent(
    { workspaceId, sourceJson, replace }: workspacesPb.SetContentRequest,
    context: CallContext,
  ): Promise<workspacesPb.SetContentResponse> {
    return told(await this.workspaces.setContent(callerOf(context), workspaceId, jsonOf(sourceJson), replace));
  }

  async upload(
    stream: AsyncIterable<workspacesPb.UploadRequest>,
    context: CallContext,
  ): Promise<workspacesPb.UploadResponse> {
    const caller = callerOf(context);
    const messages = stream[Symbol.asyncIterator]();
    const first = await messages.next();
    if (first.done === true) throw new InvalidArgumentError('bad_request', 'Invalid input: nothing was sent');
    return told(await this.workspaces.upload(caller, first.value, bytesOf(first.value, messages)));
  }

  async listSandboxes(
    _: workspacesPb.ListSandboxesRequest,
    context: CallContext,
  ): Promise<workspacesPb.ListSandboxesResponse> {
    const sandboxes = await this.workspaces.listSandboxes(callerOf(context));
    return { sandboxesJson: sandboxes.map((one) => JSON.stringify(one)) };
  }

  async getSandbox(
    { sandboxId }: workspacesPb.GetSandboxRequest,
    context: CallContext,
  ): Promise<workspacesPb.GetSandboxResponse> {
    return { sandboxJson: JSON.stringify(await this.workspaces.getSandbox(callerOf(context), sandboxId)) };
  }

  async endSandbox(
    { sandboxId }: workspacesPb.EndSandboxRequest,
    context: CallContext,
  ): Promise<workspacesPb.EndSandboxResponse> {
    await this.workspaces.endSandbox(callerOf(context), sandboxId);
    return {};
  }

  private get workspaces(): WorkspacesService {
    if (this.opened) return this.opened;
    throw new UnimplementedError(
      'workspaces_unavailable',
      'This tool-executor keeps no records of workspaces; give it MARGAY_MONGODB_URL.',
    );
  }
}

function told(workspace: unknown): { workspaceJson: string } {
  return { workspaceJson: JSON.stringify(workspace) };
}

async function* bytesOf(
  first: workspacesPb.UploadRequest,
  others: AsyncIterator<workspacesPb.UploadRequest>,
): AsyncIterable<Uint8Array> {
  if (first.content.length > 0) yield first.content;
  for (let next = await others.next(); next.done !== true; next = await others.next())
    if (next.value.content.length > 0) yield next.value.content;
}

function jsonOf(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new InvalidArgumentError('bad_request', "Invalid input: 'content' is no JSON", { cause });
  }
}

function callerOf(context: CallContext): Principal {
  const principal = context.principal();
  if (principal.iss === 'gateway' || principal.iss === 'session') return principal;
  throw new PermissionDeniedError('gateway_only', 'Workspaces are shown to people, by the gateway.');
}

function tenantOfSession(context: CallContext): string {
  const { iss, principal, tenantId } = context.principal();
  if (iss === 'session' && principal.startsWith('system:')) return tenantId;
  throw new PermissionDeniedError('session_only', 'Only the session service may do this.');
}

import { executorPb, type RunGrant } from '@margay/contracts';
import { PermissionDeniedError, UnimplementedError } from '@margay/errors';
import { audienceOf, iterateWithTraceparent, KeyRing, type CallContext, type GrpcHandlers } from '@margay/platform';
import { serveCalls, type StartedCall } from '@margay/platform/calls';
import { Inject, Injectable, Optional } from '@nestjs/common';
import { EgressCallers } from '../egress/egress-callers';
import { FilesService } from '../files/files.service';
import { WorktreesService } from '../files/worktrees.service';
import { MaskedCalls } from '../redaction/masked-calls';
import { SandboxRegistry } from '../sandbox/sandbox-registry';
import { ExecutorService } from './executor.service';

const AUDIENCE = audienceOf(executorPb.ExecutorDefinition);

/** Runners act by their run grant; session acts on its own behalf. */
@Injectable()
export class ExecutorGrpc implements GrpcHandlers<executorPb.ExecutorDefinition> {
  constructor(
    private readonly executor: ExecutorService,
    private readonly registry: SandboxRegistry,
    private readonly keys: KeyRing,
    private readonly files: FilesService,
    private readonly worktrees: WorktreesService,
    @Optional() @Inject(EgressCallers) private readonly callers?: EgressCallers,
    /** Absent where there is no session to ask for secrets. */
    @Optional() @Inject(MaskedCalls) private readonly masked?: MaskedCalls,
  ) {}

  async listTools(): Promise<executorPb.ListToolsResponse> {
    const { isolation, classes } = this.registry;
    return { toolsJson: this.executor.listTools(), isolation, sandboxClasses: [...classes] };
  }

  execute(request: executorPb.ExecuteRequest, context: CallContext): AsyncIterable<executorPb.ExecuteResponse> {
    return this.masking(request, context.grant(), context.signal);
  }

  /** Each call brings its grant: the stream may outlive the one it was opened with. */
  calls(stream: CallsStream): void {
    serveCalls<executorPb.ExecuteRequest, executorPb.ExecuteResponse>(stream, (call) => this.call(call));
  }

  async cancelCall(
    request: executorPb.CancelCallRequest,
    context: CallContext,
  ): Promise<executorPb.CancelCallResponse> {
    if (context.hasGrant()) {
      const grant = context.grant();
      return this.executor.cancelCall(grant.tenantId, grant.sessionId, request, grant);
    }
    // Call ids begin with their session's.
    const sessionId = request.callId.split('.', 1)[0] ?? '';
    return this.executor.cancelCall(tenantOfSession(context), sessionId, request);
  }

  async fenceSession(
    request: executorPb.FenceSessionRequest,
    context: CallContext,
  ): Promise<executorPb.FenceSessionResponse> {
    await this.executor.fence(tenantOfSession(context), request.sessionId, request);
    return {};
  }

  placeAttachment(
    request: executorPb.PlaceAttachmentRequest,
    context: CallContext,
  ): Promise<executorPb.PlaceAttachmentResponse> {
    return this.files.place(request, context.grant());
  }

  async expandReferences(
    request: executorPb.ExpandReferencesRequest,
    context: CallContext,
  ): Promise<executorPb.ExpandReferencesResponse> {
    const grant = context.grant();
    const { text } = await this.files.expand(request, grant);
    return { text: (await this.masked?.maskText(text, grant)) ?? text };
  }

  async listBranches(
    request: executorPb.ListBranchesRequest,
    context: CallContext,
  ): Promise<executorPb.ListBranchesResponse> {
    return this.files.branches(tenantOfSession(context), request);
  }

  async listWorktrees(
    request: executorPb.ListWorktreesRequest,
    context: CallContext,
  ): Promise<executorPb.ListWorktreesResponse> {
    return this.files.worktrees(tenantOfSession(context), request);
  }

  async addWorktree(
    request: executorPb.AddWorktreeRequest,
    context: CallContext,
  ): Promise<executorPb.AddWorktreeResponse> {
    return this.worktrees.add(tenantOfSession(context), request);
  }

  async removeWorktree(
    request: executorPb.RemoveWorktreeRequest,
    context: CallContext,
  ): Promise<executorPb.RemoveWorktreeResponse> {
    return this.worktrees.remove(tenantOfSession(context), request);
  }

  async describeWorkspaces(
    request: executorPb.DescribeWorkspacesRequest,
    context: CallContext,
  ): Promise<executorPb.DescribeWorkspacesResponse> {
    return this.files.describe(tenantOfSession(context), request);
  }

  async listFiles(request: executorPb.ListFilesRequest, context: CallContext): Promise<executorPb.ListFilesResponse> {
    return this.files.list(tenantOfSession(context), request);
  }

  async resolveCaller(
    request: executorPb.ResolveCallerRequest,
    context: CallContext,
  ): Promise<executorPb.ResolveCallerResponse> {
    if (context.principal().iss !== 'egress')
      throw new PermissionDeniedError('egress_only', 'Only the egress proxy asks whose sandbox speaks to it.');
    if (this.callers) return this.callers.resolve(request);
    throw new UnimplementedError('egress_local', 'The sandboxes of this driver speak to the proxy by sockets.');
  }

  private async *call({ request, grant, traceparent, signal }: StartedCall<executorPb.ExecuteRequest>) {
    const verified = await this.keys.verifyRunGrant(grant, AUDIENCE);
    yield* iterateWithTraceparent(traceparent, () => this.masking(request, verified, signal));
  }

  private masking(request: executorPb.ExecuteRequest, grant: RunGrant, signal: AbortSignal) {
    const calls = this.executor.execute(request, grant, signal);
    return this.masked?.mask(calls, grant, request.callId) ?? calls;
  }

  async release(request: executorPb.ReleaseRequest, context: CallContext): Promise<executorPb.ReleaseResponse> {
    await this.registry.release(tenantOfSession(context), request.sessionId, request.upToEpoch);
    return {};
  }
}

type CallsStream = Parameters<GrpcHandlers<executorPb.ExecutorDefinition>['calls']>[0];

/** The tenant session acts for; nobody else may fence or end sandboxes. */
function tenantOfSession(context: CallContext): string {
  const { iss, principal, tenantId } = context.principal();
  if (iss === 'session' && principal.startsWith('system:')) return tenantId;
  throw new PermissionDeniedError('session_only', 'Only the session service may do this; runners use their run grant.');
}

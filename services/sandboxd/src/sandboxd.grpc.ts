import {
  Server,
  ServerCredentials,
  type sendUnaryData,
  type Metadata,
  type ServerDuplexStream,
  type ServerReadableStream,
  type ServerUnaryCall,
  type ServerWritableStream,
} from '@grpc/grpc-js';
import { METADATA, sandboxdPb, type SandboxGrant } from '@margay/contracts';
import { errorOf } from '@margay/errors';
import { serveCalls, type StartedCall } from '@margay/platform/calls';
import { addContent } from './content/content.grpc';
import type { GrantVerifier } from './grants/grant-verifier';
import { demand, type Sandbox } from './sandbox';
import { toServiceError } from './service-error';
import type { Identity } from './tls/self-signed';

export interface SandboxdServerOptions {
  sandbox: Sandbox;
  verifier: GrantVerifier;
  /** `unix:/path` or `host:port`. */
  listen: string;
  /** Whom it shows itself as; without it nothing is encrypted. */
  identity?: Identity | undefined;
  /** Called when `Shutdown` has been answered. */
  onShutdown: (graceMs: number) => void;
}

const { methods, fullName } = sandboxdPb.SandboxdDefinition;
const MAX_MESSAGE_BYTES = 8 * 1024 * 1024;

type Unary<Q, S> = (request: Q, grant: SandboxGrant) => Promise<S>;

/** The daemon's socket. grpc-js alone: Nest would triple the time to start. */
export class SandboxdServer {
  private readonly server = new Server({
    'grpc.max_receive_message_length': MAX_MESSAGE_BYTES,
    'grpc.max_send_message_length': MAX_MESSAGE_BYTES,
  });

  constructor(private readonly options: SandboxdServerOptions) {
    const { sandbox, onShutdown } = options;
    this.server.addService(serviceOf(), {
      hello: this.unary<sandboxdPb.HelloRequest, sandboxdPb.HelloResponse>((_, grant) => sandbox.hello(grant)),
      execute: (call: Execution) =>
        void this.stream(call, (request, grant, left) => sandbox.execute(request, grant, left)),
      snapshot: (call: Snapshotting) => void this.stream(call, (request, grant) => sandbox.snapshot(request, grant)),
      restore: (call: Restoring, callback: sendUnaryData<sandboxdPb.RestoreResponse>) => this.restore(call, callback),
      calls: (stream: Calls) =>
        serveCalls<sandboxdPb.ExecuteRequest, sandboxdPb.ExecuteResponse>(stream, (call) => this.call(call)),
      cancelCall: this.unary<sandboxdPb.CancelCallRequest, sandboxdPb.CancelCallResponse>((request, grant) =>
        sandbox.cancelCall(request, grant),
      ),
      fence: this.unary<sandboxdPb.FenceRequest, sandboxdPb.FenceResponse>(async (request, grant) => {
        await sandbox.fence(request, grant);
        return {};
      }),
      forget: this.unary<sandboxdPb.ForgetRequest, sandboxdPb.ForgetResponse>(async (request, grant) => {
        await sandbox.forget(request, grant);
        return {};
      }),
      placeAttachment: this.unary<sandboxdPb.PlaceAttachmentRequest, sandboxdPb.PlaceAttachmentResponse>(
        (request, grant) => sandbox.placeAttachment(request, grant),
      ),
      listFiles: this.unary<sandboxdPb.ListFilesRequest, sandboxdPb.ListFilesResponse>((request, grant) =>
        sandbox.listFiles(request, grant),
      ),
      expandReferences: this.unary<sandboxdPb.ExpandReferencesRequest, sandboxdPb.ExpandReferencesResponse>(
        (request, grant) => sandbox.expandReferences(request, grant),
      ),
      watchIndex: (call: Watching) => void this.stream(call, (_, grant, left) => sandbox.watchIndex(grant, left)),
      addWorktree: this.unary<sandboxdPb.AddWorktreeRequest, sandboxdPb.AddWorktreeResponse>((request, grant) =>
        sandbox.addWorktree(request, grant),
      ),
      removeWorktree: this.unary<sandboxdPb.RemoveWorktreeRequest, sandboxdPb.RemoveWorktreeResponse>(
        (request, grant) => sandbox.removeWorktree(request, grant),
      ),
      shutdown: this.unary<sandboxdPb.ShutdownRequest, sandboxdPb.ShutdownResponse>(async (request, grant) => {
        demand(grant, 'admin');
        setImmediate(() => onShutdown(request.graceMs));
        return {};
      }),
    });
    addContent(this.server, sandbox, ({ metadata }) => this.grantOf(metadata));
  }

  async start(): Promise<void> {
    const { listen, identity } = this.options;
    await new Promise<void>((resolve, reject) => {
      this.server.bindAsync(listen, credentialsOf(identity), (error) => {
        if (error) reject(error);
        else resolve();
      });
    });
  }

  close(): void {
    this.server.forceShutdown();
  }

  private unary<Q, S>(handle: Unary<Q, S>): (call: ServerUnaryCall<Q, S>, callback: sendUnaryData<S>) => void {
    return (call, callback) => {
      this.grantOf(call.metadata)
        .then((grant) => handle(call.request, grant))
        .then(
          (response) => callback(null, response),
          (error: unknown) => callback(toServiceError(error)),
        );
    };
  }

  private restore(call: Restoring, callback: sendUnaryData<sandboxdPb.RestoreResponse>): void {
    this.grantOf(call.metadata)
      .then((grant) => this.options.sandbox.restore(call, grant))
      .then(
        (response) => callback(null, response),
        (error: unknown) => callback(toServiceError(error)),
      );
  }

  private async stream<Q, S>(
    call: ServerWritableStream<Q, S>,
    answer: (request: Q, grant: SandboxGrant, left: AbortSignal) => AsyncIterable<S>,
  ): Promise<void> {
    const left = new AbortController();
    call.on('cancelled', () => left.abort(errorOf('CANCELLED', 'cancelled', 'The caller left.')));
    try {
      const grant = await this.grantOf(call.metadata);
      for await (const message of answer(call.request, grant, left.signal)) {
        if (left.signal.aborted) return;
        if (!call.write(message)) await drained(call, left.signal);
      }
      call.end();
    } catch (error) {
      call.emit('error', toServiceError(error));
    }
  }

  private async *call({ request, grant, signal }: StartedCall<sandboxdPb.ExecuteRequest>) {
    yield* this.options.sandbox.execute(request, await this.options.verifier.verify(grant), signal);
  }

  private grantOf(metadata: Metadata): Promise<SandboxGrant> {
    const [token] = metadata.get(METADATA.grant);
    return this.options.verifier.verify(typeof token === 'string' ? token : undefined);
  }
}

function credentialsOf(identity: Identity | undefined): ServerCredentials {
  if (!identity) return ServerCredentials.createInsecure();
  const pair = { private_key: Buffer.from(identity.keyPem), cert_chain: Buffer.from(identity.certificatePem) };
  return ServerCredentials.createSsl(null, [pair], false);
}

type Calls = ServerDuplexStream<sandboxdPb.CallsRequest, sandboxdPb.CallsResponse>;
type Execution = ServerWritableStream<sandboxdPb.ExecuteRequest, sandboxdPb.ExecuteResponse>;
type Snapshotting = ServerWritableStream<sandboxdPb.SnapshotRequest, sandboxdPb.SnapshotResponse>;
type Watching = ServerWritableStream<sandboxdPb.WatchIndexRequest, sandboxdPb.WatchIndexResponse>;
type Restoring = ServerReadableStream<sandboxdPb.RestoreRequest, sandboxdPb.RestoreResponse>;

function drained(call: NodeJS.EventEmitter, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const go = (): void => {
      call.off('drain', go);
      signal.removeEventListener('abort', go);
      resolve();
    };
    call.on('drain', go);
    signal.addEventListener('abort', go);
    if (signal.aborted) go();
  });
}

interface Codec<T> {
  encode(message: T): { finish(): Uint8Array };
  decode(bytes: Uint8Array): T;
}

function codec<Q, S>(
  name: string,
  request: Codec<Q>,
  response: Codec<S>,
  { requestStream = false, responseStream = false } = {},
) {
  return {
    path: `/${fullName}/${name}`,
    requestStream,
    responseStream,
    requestSerialize: (message: Q) => Buffer.from(request.encode(message).finish()),
    requestDeserialize: (bytes: Buffer) => request.decode(bytes),
    responseSerialize: (message: S) => Buffer.from(response.encode(message).finish()),
    responseDeserialize: (bytes: Buffer) => response.decode(bytes),
  };
}

function serviceOf() {
  const { hello, execute, calls, cancelCall, fence, forget, placeAttachment, listFiles, shutdown } = methods;
  const { snapshot, restore, watchIndex, addWorktree, removeWorktree, expandReferences } = methods;
  return {
    hello: codec(hello.name, hello.requestType, hello.responseType),
    execute: codec(execute.name, execute.requestType, execute.responseType, { responseStream: true }),
    calls: codec(calls.name, calls.requestType, calls.responseType, { requestStream: true, responseStream: true }),
    cancelCall: codec(cancelCall.name, cancelCall.requestType, cancelCall.responseType),
    fence: codec(fence.name, fence.requestType, fence.responseType),
    forget: codec(forget.name, forget.requestType, forget.responseType),
    placeAttachment: codec(placeAttachment.name, placeAttachment.requestType, placeAttachment.responseType),
    listFiles: codec(listFiles.name, listFiles.requestType, listFiles.responseType),
    shutdown: codec(shutdown.name, shutdown.requestType, shutdown.responseType),
    expandReferences: codec(expandReferences.name, expandReferences.requestType, expandReferences.responseType),
    watchIndex: codec(watchIndex.name, watchIndex.requestType, watchIndex.responseType, { responseStream: true }),
    addWorktree: codec(addWorktree.name, addWorktree.requestType, addWorktree.responseType),
    removeWorktree: codec(removeWorktree.name, removeWorktree.requestType, removeWorktree.responseType),
    snapshot: codec(snapshot.name, snapshot.requestType, snapshot.responseType, { responseStream: true }),
    restore: codec(restore.name, restore.requestType, restore.responseType, { requestStream: true }),
  };
}

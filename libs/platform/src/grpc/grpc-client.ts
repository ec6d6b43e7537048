import {
  Client,
  credentials,
  InterceptingCall,
  Metadata,
  status as Status,
  type CallOptions as WireOptions,
  type ClientReadableStream,
  type Interceptor,
} from '@grpc/grpc-js';
import { METADATA } from '@margay/contracts';
import { CancelledError, InternalError, UnavailableError } from '@margay/errors';
import type { KeyRing } from '../auth/key-ring';
import type { Logger } from '../logging/logger';
import { currentTraceparent } from '../telemetry/spans';
import { channelCredentials } from '../tls/credentials';
import { clientOptions, codecOf, pathOf } from './channel';
import {
  audienceOf,
  type CallOptions,
  type GrpcClient,
  type MethodDefinition,
  type ServiceDefinition,
} from './service-types';
import { fromServiceError } from './status';

export interface GrpcClientOptions {
  /** Needed to send principals; its TLS identity encrypts the connection. */
  keys?: KeyRing;
  logger?: Logger;
  /** Speaks TLS, with nobody but the holder of this certificate (PEM, made for the name `PINNED_NAME`). */
  pinnedCertificate?: string;
}

/** The name in certificates that are pinned rather than issued. */
export const PINNED_NAME = 'margay-sandbox';

const UNARY_TIMEOUT_MS = 30_000;
/** grpc-js calls of all kinds: cancellable emitters. */
interface Call {
  cancel(): void;
  emit(event: string | symbol, ...values: unknown[]): boolean;
  once(event: string, listener: () => void): unknown;
}

/**
 * A typed client of a generated service definition. It connects at the first call, spreads calls over all addresses of the
 * name, reconnects by itself, and throws the errors the server threw. `address` is `host:port` or `unix:/path`.
 */
export function grpcClient<D extends ServiceDefinition>(
  definition: D,
  address: string,
  options: GrpcClientOptions = {},
): GrpcClient<D> {
  const channel = openChannel(definition, address, options);
  const methods = Object.entries(definition.methods).map(([key, method]) => {
    return [key, clientMethod(new MethodCaller(channel, definition, method, options.keys), method)];
  });
  return Object.assign(Object.fromEntries(methods), {
    close: () => channel.close(),
    waitForReady: (timeoutMs: number) => waitForReady(channel, address, timeoutMs),
  }) as GrpcClient<D>;
}

function openChannel(
  definition: ServiceDefinition,
  address: string,
  { keys, pinnedCertificate }: GrpcClientOptions,
): Client {
  if (pinnedCertificate === undefined) {
    const channel = channelCredentials(keys?.tls, address, audienceOf(definition));
    return new Client(address, channel.credentials, { ...clientOptions, ...channel.options });
  }
  // As the only trusted root it is the only certificate that passes.
  return new Client(address, credentials.createSsl(Buffer.from(pinnedCertificate)), {
    ...clientOptions,
    'grpc.ssl_target_name_override': PINNED_NAME,
  });
}

function clientMethod(caller: MethodCaller, method: MethodDefinition): unknown {
  if (method.requestStream && method.responseStream) return (options?: CallOptions) => caller.bidi(options);
  if (method.requestStream) {
    return (messages: AsyncIterable<unknown>, options?: CallOptions) => caller.clientStream(messages, options);
  }
  if (method.responseStream) return (request: unknown, options?: CallOptions) => caller.serverStream(request, options);
  return (request: unknown, options?: CallOptions) => caller.unary(request, options);
}

class MethodCaller {
  private readonly path: string;
  private readonly target: string;
  private readonly audience: string;
  private readonly codec: ReturnType<typeof codecOf>;

  constructor(
    private readonly channel: Client,
    definition: ServiceDefinition,
    method: MethodDefinition,
    private readonly keys: KeyRing | undefined,
  ) {
    this.path = pathOf(definition, method);
    this.target = `${definition.name}.${method.name}`;
    this.audience = audienceOf(definition);
    this.codec = codecOf(method);
  }

  async unary(request: unknown, options: CallOptions = {}): Promise<unknown> {
    refuseIfAborted(options.signal, this.target);
    const { requestSerialize, responseDeserialize } = this.codec;
    return new Promise((resolve, reject) => {
      const done = (error: unknown, response: unknown) =>
        error ? reject(fromServiceError(error, this.target, options.signal)) : resolve(response);
      const wire = this.wireOptions(options, UNARY_TIMEOUT_MS);
      const metadata = metadataOf(options);
      const call = this.channel.makeUnaryRequest(
        this.path,
        requestSerialize,
        responseDeserialize,
        request,
        metadata,
        wire,
        done,
      );
      cancelOnAbort(call as unknown as Call, options.signal, 'status');
    });
  }

  /** Starts when iterated; leaving the loop cancels the call. */
  async *serverStream(request: unknown, options: CallOptions = {}): AsyncIterable<unknown> {
    refuseIfAborted(options.signal, this.target);
    const { requestSerialize, responseDeserialize } = this.codec;
    const wire = this.wireOptions(options);
    const metadata = metadataOf(options);
    const call = this.channel.makeServerStreamRequest(
      this.path,
      requestSerialize,
      responseDeserialize,
      request,
      metadata,
      wire,
    );
    this.translate(call, options.signal);
    try {
      yield* call as ClientReadableStream<unknown> & AsyncIterable<unknown>;
    } finally {
      call.cancel();
    }
  }

  async clientStream(messages: AsyncIterable<unknown>, options: CallOptions = {}): Promise<unknown> {
    refuseIfAborted(options.signal, this.target);
    const { requestSerialize, responseDeserialize } = this.codec;
    return new Promise((resolve, reject) => {
      const done = (error: unknown, response: unknown) =>
        error ? reject(fromServiceError(error, this.target, options.signal)) : resolve(response);
      const wire = this.wireOptions(options);
      const call = this.channel.makeClientStreamRequest(
        this.path,
        requestSerialize,
        responseDeserialize,
        metadataOf(options),
        wire,
        done,
      );
      cancelOnAbort(call as unknown as Call, options.signal, 'status');
      pump(messages, call).catch((error: unknown) => {
        call.cancel();
        reject(error);
      });
    });
  }

  bidi(options: CallOptions = {}): unknown {
    const { requestSerialize, responseDeserialize } = this.codec;
    const wire = this.wireOptions(options);
    const call = this.channel.makeBidiStreamRequest(
      this.path,
      requestSerialize,
      responseDeserialize,
      metadataOf(options),
      wire,
    );
    this.translate(call, options.signal);
    if (options.signal?.aborted) call.cancel();
    return call;
  }

  /** Errors of streams arrive as events; they are rebuilt before anyone sees them. */
  private translate(call: unknown, signal: AbortSignal | undefined): void {
    const stream = call as Call;
    const emit = stream.emit.bind(stream);
    stream.emit = (event, ...values) =>
      emit(event, ...(event === 'error' ? [fromServiceError(values[0], this.target, signal)] : values));
    cancelOnAbort(stream, signal, 'status');
  }

  private wireOptions(options: CallOptions, defaultTimeoutMs?: number): WireOptions {
    const timeoutMs = options.timeoutMs ?? defaultTimeoutMs;
    return {
      ...(timeoutMs !== undefined && { deadline: Date.now() + timeoutMs }),
      ...(options.principal && { interceptors: [this.signing(options.principal)] }),
    };
  }

  /**
   * Signing is asynchronous, calls are not: grpc-js holds messages back until the interceptor lets the call start. A call
   * cancelled before that would never end by itself.
   */
  private signing(principal: NonNullable<CallOptions['principal']>): Interceptor {
    const { keys, audience } = this;
    if (!keys)
      throw new InternalError('no_private_key', `${this.target} was given a principal, but this client has no keys.`);
    keys.assertMayAssert(principal);
    return (wire, nextCall) => {
      let isStarted = false;
      let isCancelled = false;
      return new InterceptingCall(nextCall(wire), {
        start: (metadata, listener, next) => {
          const end = (code: Status, details: string) =>
            listener.onReceiveStatus({ code, details, metadata: new Metadata() });
          keys.signPrincipal(principal, audience).then(
            (token) => {
              if (isCancelled) return end(Status.CANCELLED, 'Cancelled on client');
              isStarted = true;
              metadata.set(METADATA.principal, token);
              next(metadata, listener);
            },
            () => end(Status.INTERNAL, 'signing failed'),
          );
        },
        cancel: (next) => {
          isCancelled = true;
          if (isStarted) next();
        },
      });
    };
  }
}

function metadataOf(options: CallOptions): Metadata {
  const metadata = new Metadata();
  if (options.grant) metadata.set(METADATA.grant, options.grant);
  const requestId = options.requestId ?? options.principal?.requestId;
  if (requestId) metadata.set(METADATA.requestId, requestId);
  const traceparent = currentTraceparent();
  if (traceparent) metadata.set('traceparent', traceparent);
  return metadata;
}

function refuseIfAborted(signal: AbortSignal | undefined, target: string): void {
  if (signal?.aborted) {
    throw new CancelledError('cancelled', `${target} was not called, since it is cancelled already.`, {
      cause: signal.reason,
    });
  }
}

function cancelOnAbort(call: Call, signal: AbortSignal | undefined, endEvent: string): void {
  if (!signal) return;
  const cancel = () => call.cancel();
  signal.addEventListener('abort', cancel, { once: true });
  call.once(endEvent, () => signal.removeEventListener('abort', cancel));
}

async function pump(
  messages: AsyncIterable<unknown>,
  call: { write(message: unknown, done: () => void): boolean; end(): void },
) {
  for await (const message of messages) await new Promise<void>((resolve) => call.write(message, resolve));
  call.end();
}

async function waitForReady(channel: Client, address: string, timeoutMs: number): Promise<void> {
  await new Promise<void>((resolve, reject) => {
    channel.waitForReady(Date.now() + timeoutMs, (cause) => {
      if (cause)
        reject(new UnavailableError('unavailable', `${address} was not reached in ${timeoutMs} ms.`, { cause }));
      else resolve();
    });
  });
}

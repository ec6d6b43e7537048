import { setImmediate as nextTurn } from 'node:timers/promises';
import {
  Server,
  type sendUnaryData,
  type ServerDuplexStream,
  type ServerReadableStream,
  type ServerUnaryCall,
  type ServerWritableStream,
  type UntypedHandleCall,
} from '@grpc/grpc-js';
import {
  CancelledError,
  CODES,
  isMargayError,
  UnauthenticatedError,
  UnavailableError,
  type MargayError,
} from '@margay/errors';
import type { Registry } from 'prom-client';
import type { KeyRing } from '../auth/key-ring';
import type { Logger } from '../logging/logger';
import { ATTRIBUTE } from '../telemetry/attributes';
import { runWithTraceparent, withSpan } from '../telemetry/spans';
import { CallerCheck, isEncrypted, serverCredentials } from '../tls/credentials';
import { readCredentials, ServerCallContext, traceparentOf, type CallEvents } from './call-context';
import { serverOptions, toGrpc, type ConnectionAge } from './channel';
import { callTimer } from './metrics';
import { writeAll } from './response-stream';
import {
  audienceOf,
  type CallContext,
  type GrpcHandlers,
  type MethodDefinition,
  type ServiceDefinition,
} from './service-types';
import { toServiceError } from './status';

export interface GrpcServerOptions extends ConnectionAge {
  /** `host:port` (port 0: a free one) or `unix:/path`. */
  listen: string;
  keys: KeyRing;
  logger: Logger;
  /** Where call durations are recorded. */
  registry?: Registry;
  /** Why this process serves nobody at present; undefined while it does. Asked at each call. */
  refusal?: () => MargayError | undefined;
  /** In sandboxd: the sandbox it is; then `margay-grant` is a sandbox grant for it instead of a run grant. */
  sandboxId?: string;
}

export interface ServeOptions {
  /** Keys of methods that need neither a principal nor a grant; all others refuse calls without one. */
  anonymous?: readonly string[];
}

type Work<C, T> = (call: C, context: ServerCallContext) => Promise<T>;
type AnyHandler = (input: unknown, context: CallContext) => unknown;

/**
 * Serves generated service definitions over grpc-js: verifies principals and grants, continues traces, translates errors,
 * turns cancellation into an AbortSignal, measures. Handlers are plain functions.
 */
export class GrpcServer {
  private readonly server: Server;
  private readonly callers: CallerCheck;
  private serving = false;

  constructor(private readonly options: GrpcServerOptions) {
    this.server = new Server(serverOptions(options));
    this.callers = new CallerCheck(options.keys.service);
  }

  /** True between start and close. */
  get isServing(): boolean {
    return this.serving;
  }

  /** Handlers may be a plain object or an instance of a class with these methods. */
  add<D extends ServiceDefinition>(
    definition: D,
    handlers: GrpcHandlers<D>,
    { anonymous = [] }: ServeOptions = {},
  ): this {
    const implementation: Record<string, UntypedHandleCall> = {};
    for (const [key, method] of Object.entries(definition.methods)) {
      const handler = ((handlers as Record<string, AnyHandler>)[key] as AnyHandler).bind(handlers);
      const serve = this.guard(definition, method, anonymous.includes(key));
      implementation[key] = adapt(method, handler, serve);
    }
    this.server.addService(toGrpc(definition), implementation);
    return this;
  }

  /** Binds and serves; throws UNAVAILABLE `listen_failed` if the address cannot be had. */
  async start(): Promise<{ port: number }> {
    const { keys, listen } = this.options;
    return new Promise((resolve, reject) => {
      this.server.bindAsync(listen, serverCredentials(keys.tls, listen), (cause, port) => {
        if (cause)
          return reject(
            new UnavailableError('listen_failed', `Cannot listen on ${listen}; is the port taken?`, { cause }),
          );
        this.serving = true;
        resolve({ port });
      });
    });
  }

  /** Refuses new calls, lets running ones finish for `graceMs`, then cuts them. */
  async close(graceMs = 5_000): Promise<void> {
    this.serving = false;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(() => this.server.forceShutdown(), graceMs);
      this.server.tryShutdown(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  /** What surrounds every call: credentials, span, error translation, log line, duration. */
  private guard(definition: ServiceDefinition, method: MethodDefinition, isAnonymous: boolean) {
    const { keys, logger, registry, sandboxId, refusal, listen } = this.options;
    const callers = isEncrypted(keys.tls, listen) ? this.callers : undefined;
    const audience = audienceOf(definition);
    const path = `${definition.fullName}/${method.name}`;
    const record = callTimer(registry, definition.fullName);
    const attributes = {
      [ATTRIBUTE.rpcSystem]: 'grpc',
      [ATTRIBUTE.rpcService]: definition.fullName,
      [ATTRIBUTE.rpcMethod]: method.name,
    };
    // A span of a stream that both sides keep open for hours would tell nothing.
    const isConversation = method.requestStream && method.responseStream;
    return async <C extends CallEvents, T>(call: C, work: Work<C, T>): Promise<T> => {
      const startedAt = performance.now();
      const context = new ServerCallContext(call);
      let code = 'OK';
      try {
        const refused = refusal?.();
        if (refused) throw refused;
        callers?.require(call);
        const credentials = await readCredentials(call.metadata, keys, audience, sandboxId);
        if (credentials.principal) callers?.requireIssuer(call, credentials.principal);
        if (!isAnonymous && Object.keys(credentials).length === 0) throw noCredentials(path);
        context.admit(credentials);
        const serve = () => work(call, context);
        return await runWithTraceparent(traceparentOf(context), () =>
          isConversation ? serve() : withSpan(path, attributes, serve, { kind: 'server' }),
        );
      } catch (error) {
        code = isMargayError(error) ? error.code : 'INTERNAL';
        const level = CODES[code as keyof typeof CODES].log;
        logger[level]({ method: path, requestId: context.requestId, err: error }, 'gRPC call failed');
        throw toServiceError(error, context.requestId);
      } finally {
        record(method.name, code, startedAt);
      }
    };
  }
}

type Serve = ReturnType<GrpcServer['guard']>;

function adapt(method: MethodDefinition, handler: AnyHandler, serve: Serve): UntypedHandleCall {
  if (method.requestStream) return method.responseStream ? bidi(handler, serve) : clientStream(handler, serve);
  return method.responseStream ? serverStream(handler, serve) : unary(handler, serve);
}

const unary = (handler: AnyHandler, serve: Serve) => {
  return (call: ServerUnaryCall<unknown, unknown>, callback: sendUnaryData<unknown>) => {
    const work = async (_: unknown, context: CallContext) => handler(call.request, context);
    serve(call, work).then((response) => callback(null, response), callback);
  };
};

const clientStream = (handler: AnyHandler, serve: Serve) => {
  return (call: ServerReadableStream<unknown, unknown>, callback: sendUnaryData<unknown>) => {
    const work = async (_: unknown, context: CallContext) => handler(whole(call, context), context);
    serve(call, work).then((response) => callback(null, response), callback);
  };
};

/** A stream whose sender left ends like any other; half of it must not be taken for all of it. */
async function* whole(call: ServerReadableStream<unknown, unknown>, { signal }: CallContext): AsyncIterable<unknown> {
  yield* call as AsyncIterable<unknown>;
  // HTTP/2 ends a stream that is reset, and says in the next turns that it was.
  for (let turns = 3; turns > 0 && !call.cancelled; turns -= 1) await nextTurn();
  if (call.cancelled || signal.aborted)
    throw new CancelledError('cancelled', 'The caller left before it had sent everything.');
}

const serverStream = (handler: AnyHandler, serve: Serve) => {
  return (call: ServerWritableStream<unknown, unknown>) => {
    const work = async (_: unknown, context: CallContext) =>
      writeAll(handler(call.request, context) as AsyncIterable<unknown>, call, context.signal);
    serve(call, work).then(
      () => call.end(),
      (error: unknown) => call.emit('error', error),
    );
  };
};

/** The call lasts until its stream is over, however early the handler returns. */
const bidi = (handler: AnyHandler, serve: Serve) => {
  return (call: ServerDuplexStream<unknown, unknown>) => {
    const work = async (_: unknown, context: ServerCallContext) => {
      const over = new Promise<void>((resolve, reject) => {
        context.onFail(reject);
        call.once('finish', resolve).once('close', resolve);
      });
      await Promise.all([handler(call, context), over]);
    };
    serve(call, work).catch((error: unknown) => call.emit('error', error));
  };
};

function noCredentials(path: string) {
  return new UnauthenticatedError('credentials_missing', `${path} needs a signed principal or a grant.`);
}

import type { ClientDuplexStream, Metadata, ServerDuplexStream, ServerReadableStream } from '@grpc/grpc-js';
import type { Principal, RunGrant, SandboxGrant } from '@margay/contracts';

interface Codec {
  encode(message: unknown): { finish(): Uint8Array };
  decode(bytes: Uint8Array): unknown;
}

export interface MethodDefinition {
  readonly name: string;
  readonly requestType: Codec;
  readonly requestStream: boolean;
  readonly responseType: Codec;
  readonly responseStream: boolean;
}

/** What ts-proto generates for a service with `generic-definitions`. */
export interface ServiceDefinition {
  readonly name: string;
  readonly fullName: string;
  readonly methods: Readonly<Record<string, MethodDefinition>>;
}

type MessageOf<C> = C extends { decode(...input: never[]): infer T } ? T : never;
export type RequestOf<M extends MethodDefinition> = MessageOf<M['requestType']>;
export type ResponseOf<M extends MethodDefinition> = MessageOf<M['responseType']>;

/** What a handler knows about its call. */
export interface CallContext {
  /** Who acts, verified. Throws UNAUTHENTICATED `principal_missing` if the call names none. */
  principal(): Principal;
  /** The verified run grant. Throws UNAUTHENTICATED `grant_missing`. */
  grant(): RunGrant;
  hasPrincipal(): boolean;
  hasGrant(): boolean;
  /** The verified grant of a sandbox, in servers made with `sandboxId`. Throws UNAUTHENTICATED `grant_missing`. */
  sandboxGrant(): SandboxGrant;
  /** Aborted when the client cancels, disconnects or its deadline passes. */
  readonly signal: AbortSignal;
  readonly requestId: string;
  readonly metadata: Metadata;
  /** Ends a streaming call with this error, e.g. from an event handler of its stream. */
  fail(error: unknown): void;
}

type Handler<M extends MethodDefinition> = M['requestStream'] extends true
  ? M['responseStream'] extends true
    ? (stream: ServerDuplexStream<RequestOf<M>, ResponseOf<M>>, context: CallContext) => void | Promise<void>
    : (stream: ServerReadableStream<RequestOf<M>, ResponseOf<M>>, context: CallContext) => Promise<ResponseOf<M>>
  : M['responseStream'] extends true
    ? (request: RequestOf<M>, context: CallContext) => AsyncIterable<ResponseOf<M>>
    : (request: RequestOf<M>, context: CallContext) => Promise<ResponseOf<M>>;

/** One handler per method of the definition. */
export type GrpcHandlers<D extends ServiceDefinition> = { [K in keyof D['methods']]: Handler<D['methods'][K]> };

export interface CallOptions {
  /** Signed by this process for the service called. */
  principal?: Principal;
  /** A token signed elsewhere: a run grant, or a sandbox grant for sandboxd. */
  grant?: string;
  /** Default 30 s for unary calls, none for streams. */
  timeoutMs?: number;
  signal?: AbortSignal;
  requestId?: string;
}

type ClientMethod<M extends MethodDefinition> = M['requestStream'] extends true
  ? M['responseStream'] extends true
    ? (options?: CallOptions) => ClientDuplexStream<RequestOf<M>, ResponseOf<M>>
    : (messages: AsyncIterable<RequestOf<M>>, options?: CallOptions) => Promise<ResponseOf<M>>
  : M['responseStream'] extends true
    ? (request: RequestOf<M>, options?: CallOptions) => AsyncIterable<ResponseOf<M>>
    : (request: RequestOf<M>, options?: CallOptions) => Promise<ResponseOf<M>>;

export type GrpcClient<D extends ServiceDefinition> = { [K in keyof D['methods']]: ClientMethod<D['methods'][K]> } & {
  /** Gives the connection up: no new calls. Cancel streams first; they are not waited for. */
  close(): void;
  /** Waits until the connection stands; throws UNAVAILABLE after the time given. */
  waitForReady(timeoutMs: number): Promise<void>;
};

/** `aud` of tokens for a service: the middle part of its proto package, e.g. `session` of `margay.session.v1.Sessions`. */
export function audienceOf(definition: ServiceDefinition): string {
  return definition.fullName.split('.')[1] ?? definition.fullName;
}

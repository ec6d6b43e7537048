import { CODES, codeFromGrpc, errorOf, isMargayError, UnavailableError } from '@margay/errors';

/** Frames of a `Calls` stream, as both `margay.tools.v1` and `margay.sandbox.v1` spell them. */
export interface CallsRequest<Q> {
  call: number;
  execute?: Q | undefined;
  grant: string;
  traceparent: string;
  leave: boolean;
}

export interface CallsResponse<S> {
  call: number;
  response?: S | undefined;
  failure?: { code: number; reason: string; message: string } | undefined;
  end: boolean;
}

/** The part of grpc-js's duplex streams that both sides use. */
interface Duplex<In, Out> {
  write(message: Out): boolean;
  end(): unknown;
  once(event: 'drain' | 'close', listener: () => void): unknown;
  on(event: 'data', listener: (message: In) => void): unknown;
  on(event: 'error', listener: (error: Error) => void): unknown;
  on(event: 'end' | 'close', listener: () => void): unknown;
}

export interface CallOptions {
  /** Token of the call. */
  grant: string;
  traceparent?: string | undefined;
  /** Its abort leaves the call, which goes on. */
  signal?: AbortSignal;
}

/** Frames of one call that the caller has not taken yet. */
class Frames<S> {
  private readonly waiting: S[] = [];
  private outcome: { error?: Error } | undefined;
  private wake: () => void = () => undefined;

  push(frame: S): void {
    this.waiting.push(frame);
    this.wake();
  }

  /** No more frames; with an error the taker gets it after what is waiting. */
  end(outcome: { error?: Error }): void {
    this.outcome ??= outcome;
    this.wake();
  }

  async *[Symbol.asyncIterator](): AsyncIterator<S> {
    for (;;) {
      const next = this.waiting.shift();
      if (next !== undefined) yield next;
      else if (!this.outcome) await new Promise<void>((resolve) => (this.wake = resolve));
      else if (this.outcome.error !== undefined) throw this.outcome.error;
      else return;
    }
  }
}

/**
 * Many calls over one stream. It is opened at the first call, and again at the first one after it was lost; calls under
 * way are then told UNAVAILABLE `calls_cut`.
 */
export class CallStream<Q, S> {
  private readonly calls = new Map<number, Frames<S>>();
  private stream: Duplex<CallsResponse<S>, CallsRequest<Q>> | undefined;
  private count = 0;

  constructor(private readonly open: () => Duplex<CallsResponse<S>, CallsRequest<Q>>) {}

  async *execute(execute: Q, { grant, traceparent = '', signal }: CallOptions): AsyncIterable<S> {
    const stream = this.connected();
    const call = (this.count += 1);
    const frames = new Frames<S>();
    const leave = (): void => {
      if (this.calls.delete(call)) stream.write({ call, grant: '', traceparent: '', leave: true });
      frames.end({ error: signal?.reason as Error });
    };
    this.calls.set(call, frames);
    stream.write({ call, execute, grant, traceparent, leave: false });
    signal?.addEventListener('abort', leave, { once: true });
    if (signal?.aborted) leave();
    try {
      yield* frames;
    } finally {
      signal?.removeEventListener('abort', leave);
      if (this.calls.delete(call)) stream.write({ call, grant: '', traceparent: '', leave: true });
    }
  }

  close(): void {
    this.stream?.end();
    this.lost(this.stream, new UnavailableError('calls_cut', 'The stream of calls was closed.'));
  }

  private connected(): Duplex<CallsResponse<S>, CallsRequest<Q>> {
    if (this.stream) return this.stream;
    const stream = this.open();
    this.stream = stream;
    stream.on('data', (frame) => this.onFrame(frame));
    stream.on('error', (cause) =>
      this.lost(
        stream,
        isMargayError(cause)
          ? cause
          : new UnavailableError('calls_cut', 'The stream of calls was cut; try again.', { cause }),
      ),
    );
    stream.on('end', () =>
      this.lost(stream, new UnavailableError('calls_cut', 'The stream of calls has ended; try again.')),
    );
    return stream;
  }

  private onFrame({ call, response, failure, end }: CallsResponse<S>): void {
    const frames = this.calls.get(call);
    if (!frames) return;
    if (response !== undefined) frames.push(response);
    if (!failure && !end) return;
    this.calls.delete(call);
    frames.end(failure ? { error: errorOf(codeFromGrpc(failure.code), failure.reason, failure.message) } : {});
  }

  private lost(stream: Duplex<CallsResponse<S>, CallsRequest<Q>> | undefined, error: Error): void {
    if (this.stream !== stream) return;
    this.stream = undefined;
    for (const frames of this.calls.values()) frames.end({ error });
    this.calls.clear();
  }
}

export interface StartedCall<Q> {
  request: Q;
  grant: string;
  traceparent: string | undefined;
  /** Aborted when the caller left the call, or is gone. */
  signal: AbortSignal;
}

/** Serves a `Calls` stream: `handle` is run once per call, and its frames are sent in order, as fast as they are taken. */
export function serveCalls<Q, S>(
  stream: Duplex<CallsRequest<Q>, CallsResponse<S>>,
  handle: (call: StartedCall<Q>) => AsyncIterable<S>,
): void {
  const running = new Map<number, AbortController>();
  const leaveAll = (): void => {
    for (const left of running.values()) left.abort(errorOf('CANCELLED', 'cancelled', 'The caller left.'));
  };
  stream.on('data', ({ call, execute, grant, traceparent, leave }) => {
    if (leave) running.get(call)?.abort(errorOf('CANCELLED', 'cancelled', 'The caller left.'));
    if (execute === undefined) return;
    const left = new AbortController();
    running.set(call, left);
    const started = { request: execute, grant, traceparent: traceparent || undefined, signal: left.signal };
    void send(stream, call, left.signal, handle(started)).finally(() => running.delete(call));
  });
  stream.on('end', () => stream.end());
  stream.on('error', leaveAll);
  stream.on('close', leaveAll);
}

async function send<Q, S>(
  stream: Duplex<CallsRequest<Q>, CallsResponse<S>>,
  call: number,
  left: AbortSignal,
  frames: AsyncIterable<S>,
): Promise<void> {
  try {
    for await (const response of frames) {
      if (left.aborted) return;
      if (!stream.write({ call, response, end: false })) await drained(stream, left);
    }
    if (!left.aborted) stream.write({ call, end: true });
  } catch (error) {
    if (!left.aborted) stream.write({ call, failure: failureOf(error), end: true });
  }
}

function failureOf(error: unknown): { code: number; reason: string; message: string } {
  if (!isMargayError(error))
    return { code: CODES.INTERNAL.grpc, reason: 'internal', message: 'the call failed inside Margay' };
  return { code: CODES[error.code].grpc, reason: error.reason, message: error.message };
}

function drained(stream: { once(event: 'drain', listener: () => void): unknown }, left: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    stream.once('drain', resolve);
    left.addEventListener('abort', () => resolve(), { once: true });
  });
}

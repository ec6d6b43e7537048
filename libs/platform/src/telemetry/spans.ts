import {
  context,
  propagation,
  ROOT_CONTEXT,
  SpanKind,
  SpanStatusCode,
  trace,
  type Attributes,
  type Context,
  type Span,
} from '@opentelemetry/api';
import { isMargayError } from '@margay/errors';
import { ATTRIBUTE } from './attributes';

const TRACEPARENT = 'traceparent';
const KINDS = { internal: SpanKind.INTERNAL, server: SpanKind.SERVER, client: SpanKind.CLIENT };
let isEnabled = false;

export interface SpanSettings {
  /** Default `internal`. */
  kind?: keyof typeof KINDS;
  /** Stable word for `error.type`; by default the reason of our errors and `internal` for others. */
  errorType?: (error: unknown) => string;
}

/** A span that ends when somebody says so. */
export interface OpenSpan {
  /** Runs the function inside the span. */
  run<T>(fn: () => T): T;
  /** Ends it, with what is known by then; `error.type` among the attributes marks it as failed. */
  end(attributes?: Attributes): void;
}

/** Called once by startTelemetry: until then everything here only runs the function it was given. */
export function enableSpans(enabled: boolean): void {
  isEnabled = enabled;
}

/** Whether work done now belongs to a trace. */
export function isTraced(): boolean {
  return isEnabled && trace.getActiveSpan() !== undefined;
}

/** Runs the function inside a span of this name; an error marks the span and is thrown on. */
export function withSpan<T>(
  name: string,
  attributes: Attributes,
  fn: (span?: Span) => T | Promise<T>,
  settings: SpanSettings = {},
): Promise<T> {
  return isEnabled ? inSpan(name, attributes, fn, settings) : invoke(fn);
}

/** The same for short work that waits for nothing; a span only where the work belongs to a trace already. */
export function withSyncSpan<T>(name: string, attributes: Attributes, fn: () => T): T {
  const span = isTraced() ? openSpan(name, attributes) : undefined;
  if (!span) return fn();
  try {
    return span.run(fn);
  } finally {
    span.end();
  }
}

/** Starts a span, as a continuation of the trace that `traceparent` names if there is one; undefined without tracing. */
export function openSpan(
  name: string,
  attributes: Attributes,
  { kind = 'internal', traceparent }: { kind?: keyof typeof KINDS; traceparent?: string | undefined } = {},
): OpenSpan | undefined {
  if (!isEnabled) return undefined;
  const parent = traceparent === undefined ? context.active() : contextOf(traceparent);
  const span = tracer().startSpan(name, { attributes, kind: KINDS[kind] }, parent);
  const own = trace.setSpan(parent, span);
  return {
    run: (fn) => context.with(own, fn),
    end: (more = {}) => {
      span.setAttributes(more);
      if (more[ATTRIBUTE.errorType] !== undefined) span.setStatus({ code: SpanStatusCode.ERROR });
      span.end();
    },
  };
}

/** Iterates inside a span that lasts as long as the iteration. */
export function iterateInSpan<T>(
  name: string,
  attributes: Attributes,
  iterate: () => AsyncIterable<T>,
): AsyncIterable<T> {
  const span = openSpan(name, attributes);
  return span ? iterating(span, iterate) : iterate();
}

/** Marks a span whose work failed without an error. */
export function markFailed(span: Span | undefined, errorType: string): void {
  span?.setAttribute(ATTRIBUTE.errorType, errorType);
  span?.setStatus({ code: SpanStatusCode.ERROR });
}

/** The W3C traceparent of the active span, to be carried in gRPC metadata, NATS headers, outbox rows; undefined if none. */
export function currentTraceparent(): string | undefined {
  if (!isEnabled) return undefined;
  const carrier: Record<string, string> = {};
  propagation.inject(context.active(), carrier);
  return carrier[TRACEPARENT];
}

/** Runs the function as a continuation of the trace another process started; without one, outside any trace. */
export function runWithTraceparent<T>(traceparent: string | undefined, fn: () => T): T {
  return isEnabled ? context.with(contextOf(traceparent), fn) : fn();
}

/** Iterates as a continuation of the trace another process started; without one, outside any trace. */
export function iterateWithTraceparent<T>(
  traceparent: string | undefined,
  iterate: () => AsyncIterable<T>,
): AsyncIterable<T> {
  if (!isEnabled) return iterate();
  const parent = contextOf(traceparent);
  return iterating({ run: (fn) => context.with(parent, fn), end: () => undefined }, iterate);
}

/** Fields that tie a log line to its trace; a new object each time, since the logger writes into it. */
export function currentTraceIds(): { traceId?: string; spanId?: string } {
  const active = isEnabled ? trace.getActiveSpan()?.spanContext() : undefined;
  return active ? { traceId: active.traceId, spanId: active.spanId } : {};
}

const tracer = () => trace.getTracer('margay');

/** Never the active context: listeners of shared connections run in that of whoever opened them. */
function contextOf(traceparent: string | undefined): Context {
  return traceparent ? propagation.extract(ROOT_CONTEXT, { [TRACEPARENT]: traceparent }) : ROOT_CONTEXT;
}

async function invoke<T>(fn: () => T | Promise<T>): Promise<T> {
  return fn();
}

function inSpan<T>(
  name: string,
  attributes: Attributes,
  fn: (span?: Span) => T | Promise<T>,
  { kind = 'internal', errorType = errorTypeOf }: SpanSettings,
): Promise<T> {
  return tracer().startActiveSpan(name, { attributes, kind: KINDS[kind] }, async (span) => {
    try {
      return await fn(span);
    } catch (error) {
      markFailed(span, errorType(error));
      throw error;
    } finally {
      span.end();
    }
  });
}

async function* iterating<T>(span: OpenSpan, iterate: () => AsyncIterable<T>): AsyncGenerator<T> {
  const iterator = span.run(() => iterate()[Symbol.asyncIterator]());
  let failure: Attributes = {};
  let isOver = false;
  try {
    for (;;) {
      const next = await span.run(() => iterator.next());
      isOver = next.done === true;
      if (next.done) return;
      yield next.value;
    }
  } catch (error) {
    isOver = true;
    failure = { [ATTRIBUTE.errorType]: errorTypeOf(error) };
    throw error;
  } finally {
    if (!isOver) await span.run(() => iterator.return?.());
    span.end(failure);
  }
}

function errorTypeOf(error: unknown): string {
  return isMargayError(error) ? error.reason : 'internal';
}

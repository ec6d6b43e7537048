import { context, propagation, trace, SpanStatusCode, type Attributes, type Span } from '@opentelemetry/api';
import { isMargayError } from '@margay/errors';

const TRACEPARENT = 'traceparent';
let isEnabled = false;

/** Called once by startTelemetry: until then everything here only runs the function it was given. */
export function enableSpans(enabled: boolean): void {
  isEnabled = enabled;
}

/** Runs the function inside a span of this name; an error marks the span and is thrown on. */
export async function withSpan<T>(
  name: string,
  attributes: Attributes,
  fn: (span?: Span) => T | Promise<T>,
): Promise<T> {
  if (!isEnabled) return fn();
  return trace.getTracer('margay').startActiveSpan(name, { attributes }, async (span) => {
    try {
      return await fn(span);
    } catch (error) {
      span.setAttribute('error.type', isMargayError(error) ? error.reason : 'internal');
      span.setStatus({ code: SpanStatusCode.ERROR });
      throw error;
    } finally {
      span.end();
    }
  });
}

/** The W3C traceparent of the active span, to be carried in gRPC metadata, NATS headers, outbox rows; undefined if none. */
export function currentTraceparent(): string | undefined {
  if (!isEnabled) return undefined;
  const carrier: Record<string, string> = {};
  propagation.inject(context.active(), carrier);
  return carrier[TRACEPARENT];
}

/** Runs the function as a continuation of the trace another process started. */
export function runWithTraceparent<T>(traceparent: string | undefined, fn: () => T): T {
  if (!isEnabled || !traceparent) return fn();
  return context.with(propagation.extract(context.active(), { [TRACEPARENT]: traceparent }), fn);
}

/** Fields that tie a log line to its trace; a new object each time, since the logger writes into it. */
export function currentTraceIds(): { traceId?: string; spanId?: string } {
  const active = isEnabled ? trace.getActiveSpan()?.spanContext() : undefined;
  return active ? { traceId: active.traceId, spanId: active.spanId } : {};
}

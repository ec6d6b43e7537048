import { ATTRIBUTE, openSpan, type OpenSpan } from '@margay/platform';
import type { FastifyInstance } from 'fastify';
import { operationOf } from './operation';

declare module 'fastify' {
  interface FastifyRequest {
    span?: OpenSpan;
  }
}

const SERVER_ERROR = 500;

/** A span around every request, which continues the trace that its `traceparent` header names. To be added first. */
export function traceRequests(fastify: FastifyInstance): void {
  fastify.addHook('onRequest', (request, reply, done) => {
    const { method } = request;
    const route = operationOf(request)?.path ?? 'unmatched';
    const attributes = { [ATTRIBUTE.httpMethod]: method, [ATTRIBUTE.httpRoute]: route };
    // An empty one is none: a request without a trace begins one.
    const traceparent = request.headers['traceparent']?.toString() ?? '';
    const span = openSpan(`HTTP ${method} ${route}`, attributes, { kind: 'server', traceparent });
    if (!span) return done();
    request.span = span;
    // Also comes where the client left.
    reply.raw.once('close', () => {
      const { statusCode } = reply.raw;
      const tenant = request.caller ? { [ATTRIBUTE.tenant]: request.caller.principal.tenantId } : {};
      const failure = statusCode >= SERVER_ERROR ? { [ATTRIBUTE.errorType]: String(statusCode) } : {};
      span.end({ [ATTRIBUTE.httpStatus]: statusCode, ...tenant, ...failure });
    });
    span.run(done);
  });
  // Reading the body has left the span.
  fastify.addHook('preValidation', (request, _reply, done) => (request.span ? request.span.run(done) : done()));
}

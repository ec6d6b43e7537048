import { randomUUID } from 'node:crypto';
import type { IncomingMessage } from 'node:http';
import { FastifyAdapter, type NestFastifyApplication } from '@nestjs/platform-fastify';
import type { Logger } from '@margay/platform';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import type { Admission } from '../auth/admission';
import type { GatewayMetrics } from '../metrics';
import { refuseBrokenRequest, requirePlainBody } from './broken-requests';
import type { ErrorFilter } from './error.filter';
import { operationOf } from './operation';
import { limitReceipt, RECEIPT_LIMITS, type ReceiptLimits } from './receipt';
import { STREAMED_TYPES, streamOf } from './streamed-body';
import { readUpload } from './upload';
import { traceRequests } from './trace-requests';

const BODY_MAX_BYTES = 1_000_000;
/** As long as a request line can be: ids of another form are judged by the routes. */
const PARAMETER_MAX_CHARS = 16_384;
const PREFLIGHT_SECONDS = 600;
const REQUEST_ID = /^[\w.:-]{1,64}$/;

const REQUEST_HEADERS = [
  ...[
    'Content-Type',
    'X-API-KEY',
    'Authorization',
    'Last-Event-ID',
    'Idempotency-Key',
    'If-Match',
    'If-None-Match',
    'Range',
  ],
  ...[
    'X-Mewbo-Capabilities',
    'X-Mewbo-Surface',
    'X-Margay-Capabilities',
    'X-Margay-Surface',
    'X-Margay-Tenant',
    'X-Request-Id',
  ],
];
const EXPOSED_HEADERS = [
  ...[
    'ETag',
    'Retry-After',
    'X-Request-Id',
    'X-Margay-Reason',
    'Idempotency-Replayed',
    'Content-Range',
    'X-Mewbo-Session',
  ],
  ...['RateLimit-Limit', 'RateLimit-Remaining', 'RateLimit-Reset'],
];

/** Fastify as the gateway needs it: ids on every answer, errors of its own in our shape, no automatic HEAD. */
export function fastifyAdapter(filter: ErrorFilter): FastifyAdapter {
  return new FastifyAdapter({
    bodyLimit: BODY_MAX_BYTES,
    // Of what reaches no route, too; routes have bounds of their own.
    requestTimeout: RECEIPT_LIMITS.uploadMs,
    exposeHeadRoutes: false,
    routerOptions: { maxParamLength: PARAMETER_MAX_CHARS },
    genReqId: requestIdOf,
    clientErrorHandler: refuseBrokenRequest,
    frameworkErrors: (error: Error, request: FastifyRequest, reply: FastifyReply) => {
      reply.header('x-request-id', request.id);
      filter.answer(error, request, reply);
    },
  });
}

function requestIdOf({ headers }: Pick<IncomingMessage, 'headers'>): string {
  const given = headers['x-request-id'];
  return typeof given === 'string' && REQUEST_ID.test(given) ? given : randomUUID();
}

export interface HookOptions {
  admission: Admission;
  metrics: GatewayMetrics;
  receipt: ReceiptLimits;
  logger: Logger;
}

/** What happens around every request, in this order: admission before a body is read, the id on the answer, the record. */
export function addHooks(fastify: FastifyInstance, { admission, metrics, receipt, logger }: HookOptions): void {
  fastify.removeAllContentTypeParsers();
  // Bodies stay bytes until the route reads them, so that its error shape applies.
  fastify.addContentTypeParser('*', { parseAs: 'buffer' }, async (request: FastifyRequest, body: Buffer) => {
    requirePlainBody(request);
    return body;
  });
  fastify.addContentTypeParser('multipart/form-data', (request: FastifyRequest, payload: IncomingMessage) =>
    readUpload(request, payload, BODY_MAX_BYTES),
  );
  fastify.addContentTypeParser(STREAMED_TYPES, async (request: FastifyRequest, payload: IncomingMessage) => {
    const isStreamed = operationOf(request)?.streams !== undefined;
    return isStreamed ? streamOf(request, payload) : readUpload(request, payload, BODY_MAX_BYTES);
  });
  traceRequests(fastify);
  fastify.addHook('onRequest', async (request, reply) => {
    limitReceipt(request, reply, receipt);
    await admission.admit(request);
  });
  fastify.addHook('onSend', (request, reply, _payload, done) => {
    reply.header('x-request-id', request.id);
    done();
  });
  fastify.addHook('onResponse', (request, reply, done) => {
    record(request, reply, metrics, logger);
    done();
  });
}

/** Never the query: it may hold a key. */
function record(request: FastifyRequest, reply: FastifyReply, metrics: GatewayMetrics, logger: Logger): void {
  const operation = operationOf(request);
  const { method } = request;
  const status = reply.raw.statusCode;
  const route = operation?.path ?? 'unmatched';
  const isStream = reply.raw.getHeader('content-type')?.toString().startsWith('text/event-stream') === true;
  if (!isStream) metrics.requestDuration.observe({ route, method, status }, reply.elapsedTime / 1_000);
  const { caller } = request;
  const who = caller ? { tenantId: caller.principal.tenantId, keyId: caller.principal.keyId } : {};
  logger.debug(
    { requestId: request.id, method, route, status, durationMs: reply.elapsedTime, ...who },
    'request answered',
  );
}

export function enableCors(app: NestFastifyApplication, origins: '*' | string[]): void {
  app.enableCors({
    origin: origins,
    // Browsers refuse credentials together with `*`, and several origins share no cookie.
    credentials: origins !== '*' && origins.length === 1,
    methods: ['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'OPTIONS'],
    allowedHeaders: REQUEST_HEADERS,
    exposedHeaders: EXPOSED_HEADERS,
    maxAge: PREFLIGHT_SECONDS,
    strictPreflight: false,
  });
}

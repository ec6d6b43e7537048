import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import { InternalError } from '@margay/errors';
import type { FastifyRequest } from 'fastify';
import { requirePlainBody } from './broken-requests';
import { checkInput, parseJsonBody } from './input';
import { operationOf } from './operation';

/** Of bodies that are files rather than messages. */
export const STREAMED_TYPES = [
  'application/octet-stream',
  'application/x-tar',
  'application/gzip',
  'application/zstd',
  'application/zip',
];

/** The body as it comes; whoever takes it reads it to its end. */
export function streamOf(request: FastifyRequest, payload: IncomingMessage): Readable {
  requirePlainBody(request);
  return payload;
}

/** The body as it comes, where it is one of the types that its route takes so; else as its schema says. */
export const FromStreamOrBody = createParamDecorator((_: unknown, context: ExecutionContext) => {
  const request = context.switchToHttp().getRequest<FastifyRequest>();
  if (request.body instanceof Readable) return request.body;
  const operation = operationOf(request);
  if (!operation?.body) throw new InternalError('internal', `${request.method} of this route declares no body`);
  return checkInput(operation.body, parseJsonBody(request.body), operation.family);
});

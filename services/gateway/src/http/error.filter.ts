import { Catch, HttpException, type ArgumentsHost, type ExceptionFilter } from '@nestjs/common';
import { CODES, errorOf, isMargayError, type ErrorCode, type MargayError } from '@margay/errors';
import type { Logger } from '@margay/platform';
import type { FastifyReply, FastifyRequest } from 'fastify';
import { isOurFault, presentError } from './error-presenter';
import { operationOf } from './operation';

/** Framework statuses in our words. */
const FRAMEWORK: Record<number, [ErrorCode, string]> = {
  400: ['INVALID_ARGUMENT', 'bad_request'],
  404: ['NOT_FOUND', 'not_found'],
  408: ['DEADLINE_EXCEEDED', 'deadline_exceeded'],
  413: ['INVALID_ARGUMENT', 'too_large'],
  414: ['INVALID_ARGUMENT', 'bad_request'],
  415: ['INVALID_ARGUMENT', 'unsupported_media_type'],
};

/** Turns whatever was thrown while a request was served into the answer that its route promises. */
@Catch()
export class ErrorFilter implements ExceptionFilter {
  constructor(private readonly logger: Logger) {}

  catch(thrown: unknown, host: ArgumentsHost): void {
    const http = host.switchToHttp();
    this.answer(thrown, http.getRequest<FastifyRequest>(), http.getResponse<FastifyReply>());
  }

  answer(thrown: unknown, request: FastifyRequest, reply: FastifyReply): void {
    const error = translate(thrown, request);
    this.log(error, request);
    if (reply.sent || reply.raw.headersSent) {
      reply.raw.destroy();
      return;
    }
    const { session_id: sessionId } = (request.params ?? {}) as { session_id?: string };
    const { status, headers, body } = presentError(error, {
      operation: operationOf(request),
      requestId: request.id,
      sessionId,
    });
    void reply.status(status).headers(headers).send(body);
  }

  private log(error: unknown, request: FastifyRequest): void {
    const isUnexpected = !isMargayError(error) || isOurFault(error);
    const level = isUnexpected ? 'error' : CODES[error.code].log;
    this.logger[level]({ requestId: request.id, route: operationOf(request)?.path, err: error }, 'request failed');
  }
}

function translate(thrown: unknown, request: FastifyRequest): unknown {
  const status = statusOf(thrown);
  const known = status === undefined ? undefined : FRAMEWORK[status];
  return known ? fromFramework(known, thrown as Error, request) : thrown;
}

function statusOf(thrown: unknown): number | undefined {
  if (isMargayError(thrown)) return undefined;
  if (thrown instanceof HttpException) return thrown.getStatus();
  const status = thrown instanceof Error && 'statusCode' in thrown ? thrown.statusCode : undefined;
  return typeof status === 'number' ? status : undefined;
}

function fromFramework([code, reason]: [ErrorCode, string], cause: Error, request: FastifyRequest): MargayError {
  const path = request.url.split('?', 1)[0] ?? '';
  const messages: Record<string, string> = {
    not_found: `no route ${request.method} ${path.slice(0, 200)}`,
    too_large: 'the body is larger than 1 MB',
    unsupported_media_type: "Invalid header: 'Content-Type' names no media type; send application/json",
  };
  // The framework's own words may hold the query, and that a key.
  const words = cause.message.replaceAll(request.url, path.slice(0, 200));
  return errorOf(code, reason, messages[reason] ?? words, { cause });
}

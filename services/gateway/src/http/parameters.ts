import { createParamDecorator, type ExecutionContext } from '@nestjs/common';
import { InternalError, InvalidArgumentError, NotFoundError } from '@margay/errors';
import type { FastifyRequest } from 'fastify';
import { coversSession } from '../auth/tickets';
import { checkInput, parseJsonBody } from './input';
import { operationOf, type Operation } from './operation';

const SESSION_ID = /^[0-9a-f]{32}$/;
const VISIBLE_ASCII = /^[\x21-\x7e]{1,128}$/;
const CAPABILITY_MAX = 64;
const CAPABILITIES_MAX = 64;
const SURFACE = /^[\w .:-]{1,64}$/;
/** Granted by the server, never by a client. */
const SERVER_CAPABILITIES = new Set(['wiki', 'scg']);

/** What headers say about a request that creates or drives a session. */
export interface DriveFacts {
  capabilities: string[];
  /** False: no header, so an earlier grant stays. */
  hasCapabilities: boolean;
  surface: string;
  idempotencyKey: string;
}

const requestOf = (context: ExecutionContext) => context.switchToHttp().getRequest<FastifyRequest>();

/** Who calls; set on every route that needs a credential. */
export const FromCaller = createParamDecorator((_: unknown, context: ExecutionContext) => requestOf(context).caller);

export const FromBody = createParamDecorator((_: unknown, context: ExecutionContext) => {
  const request = requestOf(context);
  const { body, family } = declared(request);
  if (!body) throw new InternalError('internal', `${request.method} of this route declares no body`);
  return checkInput(body, parseJsonBody(request.body), family);
});

export const FromQuery = createParamDecorator((_: unknown, context: ExecutionContext) => {
  const request = requestOf(context);
  const { query, family } = declared(request);
  if (!query) throw new InternalError('internal', `${request.method} of this route declares no query`);
  return checkInput(query, request.query, family);
});

/** Ids of another form cannot exist, and must not reach a subject or a store. */
export const FromSessionId = createParamDecorator((_: unknown, context: ExecutionContext) => {
  const request = requestOf(context);
  const { session_id: id = '' } = request.params as { session_id?: string };
  const isCovered = !request.caller || coversSession(request.caller, id);
  if (!SESSION_ID.test(id) || !isCovered) throw new NotFoundError('session_not_found', `session ${id} not found`);
  return id;
});

export const FromHeaders = createParamDecorator((_: unknown, context: ExecutionContext) =>
  driveFacts(requestOf(context)),
);

function declared(request: FastifyRequest): Operation {
  const operation = operationOf(request);
  if (!operation) throw new InternalError('internal', 'the route declares no operation');
  return operation;
}

export function driveFacts(request: FastifyRequest): DriveFacts {
  const listed = headerOf(request, 'capabilities');
  const surface = headerOf(request, 'surface');
  return {
    capabilities: capabilitiesOf(listed ?? ''),
    hasCapabilities: listed !== undefined,
    surface: surface !== undefined && SURFACE.test(surface) ? surface : 'api',
    idempotencyKey: idempotencyKeyOf(request),
  };
}

/** Both spellings are known; ours wins. */
function headerOf(request: FastifyRequest, name: string): string | undefined {
  const value = request.headers[`x-margay-${name}`] ?? request.headers[`x-mewbo-${name}`];
  return Array.isArray(value) ? value.join(',') : value;
}

function capabilitiesOf(listed: string): string[] {
  const named = new Set(listed.split(',').map((id) => id.trim()));
  const ids = [...named].filter((id) => id !== '' && id.length <= CAPABILITY_MAX && !SERVER_CAPABILITIES.has(id));
  if (ids.length <= CAPABILITIES_MAX) return ids;
  throw new InvalidArgumentError(
    'bad_request',
    `Invalid header: 'X-Margay-Capabilities' names more than ${CAPABILITIES_MAX} capabilities`,
  );
}

function idempotencyKeyOf(request: FastifyRequest): string {
  const key = request.headers['idempotency-key'];
  if (key === undefined) return '';
  if (typeof key === 'string' && VISIBLE_ASCII.test(key)) return key;
  throw new InvalidArgumentError(
    'bad_request',
    "Invalid header: 'Idempotency-Key' must be 1 to 128 visible ASCII characters",
  );
}

import { applyDecorators, HttpCode, RequestMapping, RequestMethod } from '@nestjs/common';
import { RouteConfig } from '@nestjs/platform-fastify';
import type { TicketPurpose } from '@margay/contracts';
import type { FastifyRequest } from 'fastify';
import type { z } from 'zod';
import type { Scope } from '../auth/scopes';

/** Body of errors, fixed per route: `{"message"}` or `{"error":{…}}`. */
export type ErrorShape = 'message' | 'envelope';

export interface ResponseDescription {
  description: string;
  /** Of a JSON body. */
  schema?: z.ZodType;
  /** Of other bodies. */
  contentType?: string;
}

/** A request that a test sends; `{…}` in `path` values name things the test has made. */
export interface Sample {
  path?: Record<string, string>;
  query?: Record<string, string>;
  headers?: Record<string, string>;
  body?: unknown;
  status: number;
}

/** Everything there is to say about a route, next to its handler; the OpenAPI document is made of these. */
export interface Operation {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  /** With parameters in braces. */
  path: string;
  summary: string;
  /** `any`: every accepted credential. `optional`: also none. `public`: credentials are not looked at. */
  scope: Scope | 'any' | 'optional' | 'public';
  /** Needed instead where the query says `scope=personal`. */
  personalScope?: Scope;
  /** Tickets of this purpose are accepted instead of a key. */
  ticket?: TicketPurpose;
  /** Service that answers in the end. */
  service: 'gateway' | 'session' | 'tool-executor';
  /** `reference`: of the reference API, lenient. `margay`: ours, strict (422). */
  family: 'reference' | 'margay';
  errors: ErrorShape;
  /** Of a multipart body; absent: as all bodies. */
  uploadMaxBytes?: number;
  /** Bodies of these types reach the handler as they come, whatever their size. */
  streams?: readonly string[];
  /** An unknown session is told as a bare message, as the reference does here. */
  hasPlainNotFound?: boolean;
  query?: z.ZodObject;
  headers?: z.ZodObject;
  body?: z.ZodObject;
  responses: Record<number, ResponseDescription>;
  sample: Sample;
  /** Also served at these paths, undocumented. */
  aliases?: string[];
}

interface OperationConfig {
  operation?: Operation;
}

const OPERATION = Symbol('margay.operation');

/** Declares a route of the public API. */
export function Operation(operation: Operation): MethodDecorator {
  const paths = [operation.path, ...(operation.aliases ?? [])].map((path) => path.replace(/\{(\w+)\}/g, ':$1'));
  const remember: MethodDecorator = (_target, _key, descriptor) => {
    Reflect.defineMetadata(OPERATION, operation, descriptor.value as object);
  };
  return applyDecorators(
    RequestMapping({ method: RequestMethod[operation.method], path: paths }),
    RouteConfig({ operation } satisfies OperationConfig),
    // The answer says otherwise where it has to.
    HttpCode(200),
    remember,
  );
}

/** The operation that a request was routed to; undefined for unmatched paths. */
export function operationOf(request: FastifyRequest): Operation | undefined {
  return (request.routeOptions.config as OperationConfig).operation;
}

/** Operations of these controllers, in the order of their methods. */
export function operationsIn(controllers: readonly (abstract new (...args: never[]) => object)[]): Operation[] {
  return controllers.flatMap((controller) => {
    const prototype = controller.prototype as Record<string, object>;
    const handlers = Object.getOwnPropertyNames(prototype).map((name) => prototype[name] as object);
    return handlers.flatMap((handler) => (Reflect.getMetadata(OPERATION, handler) as Operation | undefined) ?? []);
  });
}

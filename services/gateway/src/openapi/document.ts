import { z } from 'zod';
import type { Operation, ResponseDescription } from '../http/operation';
import { VERSION } from '../version';

export type JsonObject = Record<string, unknown>;

const EXAMPLE_IDS: Record<string, string> = {
  session_id: '0f8fad5bd9cb469fa165708677289501',
  project_id: '7f9c1e02a35b4d6e8f0011223344aabb',
  worktree_id: 'wt:7f9c1e02a35b4d6e8f0011223344aabb:feature',
  name: 'search-key',
  call_id: '0f8fad5bd9cb469fa165708677289501.2.1.0',
  workspace_id: '3c8e5f0a9d2b47e6a1b2c3d4e5f60718',
  sandbox_id: '5f2b8c0d1e3a4f6b7c8d',
  blob_id: '9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08',
};

const MESSAGE = { type: 'object', properties: { message: { type: 'string' } }, required: ['message'] };
const ENVELOPE = {
  type: 'object',
  properties: {
    error: {
      type: 'object',
      properties: {
        code: { type: ['string', 'integer'] },
        status: { type: 'integer' },
        reason: { type: 'string' },
        retryable: { type: 'boolean' },
        request_id: { type: 'string' },
        details: { type: 'object' },
      },
      required: ['code', 'reason'],
    },
    message: { type: 'string' },
  },
  required: ['error'],
};

/** The OpenAPI 3.1 document of these operations; their schemas are the ones that requests are checked with. */
export function openApiDocument(operations: readonly Operation[]): JsonObject {
  const paths: Record<string, JsonObject> = {};
  for (const operation of operations) {
    paths[operation.path] = { ...paths[operation.path], [operation.method.toLowerCase()]: describe(operation) };
  }
  return {
    openapi: '3.1.0',
    info: { title: 'Margay', version: VERSION, license: { name: 'Apache-2.0', identifier: 'Apache-2.0' } },
    security: [{ apiKey: [] }, { bearer: [] }],
    paths,
    components: {
      schemas: { MessageError: MESSAGE, EnvelopeError: ENVELOPE },
      securitySchemes: {
        apiKey: { type: 'apiKey', in: 'header', name: 'X-API-KEY' },
        bearer: { type: 'http', scheme: 'bearer' },
      },
    },
  };
}

function describe(operation: Operation): JsonObject {
  const { method, path, summary, scope, personalScope, service, ticket, sample, body } = operation;
  return {
    operationId: operationId(method, path),
    summary,
    'x-margay-scope': scope,
    ...(personalScope === undefined ? {} : { 'x-margay-personal-scope': personalScope }),
    'x-margay-service': service,
    ...(ticket === undefined ? {} : { 'x-margay-ticket': ticket }),
    ...(scope === 'public' || scope === 'optional' ? { security: scope === 'public' ? [] : [{}, { apiKey: [] }] } : {}),
    parameters: [...pathParameters(path), ...parameters(operation, 'query'), ...parameters(operation, 'header')],
    ...(operation.uploadMaxBytes === undefined ? {} : { requestBody: uploadBody() }),
    ...(body ? { requestBody: { content: { ...jsonBody(body, sample.body), ...streamBodies(operation) } } } : {}),
    responses: responsesOf(operation),
  };
}

function uploadBody(): JsonObject {
  const file = { type: 'string', contentMediaType: 'application/octet-stream' };
  const properties = { files: { type: 'array', items: file }, model: { type: 'string' } };
  return { content: { 'multipart/form-data': { schema: { type: 'object', properties, required: ['files'] } } } };
}

function jsonBody(schema: z.ZodType, example: unknown): JsonObject {
  return { 'application/json': { schema: inputSchema(schema), example } };
}

function streamBodies({ streams = [] }: Operation): JsonObject {
  return Object.fromEntries(streams.map((type) => [type, { schema: { type: 'string', contentMediaType: type } }]));
}

function operationId(method: string, path: string): string {
  const words = path
    .replace(/[{}]/g, '')
    .split(/[/._]/)
    .filter((word) => word !== '' && word !== 'api');
  return method.toLowerCase() + words.map((word) => word[0]?.toUpperCase() + word.slice(1)).join('');
}

function pathParameters(path: string): JsonObject[] {
  return [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => {
    return { name, in: 'path', required: true, schema: { type: 'string' }, example: EXAMPLE_IDS[name] };
  });
}

function parameters(operation: Operation, place: 'query' | 'header'): JsonObject[] {
  const schema = place === 'query' ? operation.query : operation.headers;
  if (!schema) return [];
  const { properties = {}, required = [] } = inputSchema(schema) as {
    properties?: Record<string, JsonObject>;
    required?: string[];
  };
  const samples = place === 'query' ? operation.sample.query : operation.sample.headers;
  return Object.entries(properties).map(([name, property]) => {
    const { description, ...rest } = property;
    const example = samples?.[name];
    const texts = {
      ...(description === undefined ? {} : { description }),
      ...(example === undefined ? {} : { example }),
    };
    return { name, in: place, required: required.includes(name), schema: rest, ...texts };
  });
}

function responsesOf({ responses, errors }: Operation): JsonObject {
  const successes = Object.entries(responses).map(([status, response]) => [status, success(response)]);
  const ref = (name: string) => ({ 'application/json': { schema: { $ref: `#/components/schemas/${name}` } } });
  const usual = ref(errors === 'message' ? 'MessageError' : 'EnvelopeError');
  const failure = { description: 'an error; `X-Margay-Reason` names it', content: usual };
  return {
    ...Object.fromEntries(successes),
    401: { description: 'no or no valid credential', content: ref('MessageError') },
    403: { description: 'not allowed', content: ref('EnvelopeError') },
    429: { description: 'too many requests', content: ref('EnvelopeError') },
    default: failure,
  };
}

function success({ description, schema, contentType }: ResponseDescription): JsonObject {
  if (contentType !== undefined) return { description, content: { [contentType]: { schema: { type: 'string' } } } };
  if (!schema) return { description };
  return { description, content: { 'application/json': { schema: jsonSchema(schema, 'output') } } };
}

const inputSchema = (schema: z.ZodType) => jsonSchema(schema, 'input');

/** Self-contained, so that shared parts need no global names. */
function jsonSchema(schema: z.ZodType, io: 'input' | 'output'): JsonObject {
  const { $schema: _dialect, ...rest } = z.toJSONSchema(schema, { io, unrepresentable: 'any', reused: 'inline' });
  return rest;
}

import Ajv2020 from 'ajv/dist/2020';
import { GatewayHarness, MASTER_TOKEN } from '../spec/gateway-harness';
import { operationsIn, type Operation } from '../http/operation';
import { CONTROLLERS } from '../app.module';
import type { JsonObject } from './document';

interface Document {
  openapi: string;
  paths: Record<string, Record<string, DocumentedOperation>>;
  components: JsonObject;
}
interface DocumentedOperation {
  operationId: string;
  summary: string;
  'x-margay-scope': string;
  'x-margay-service': string;
  responses: Record<string, { content?: Record<string, { schema: JsonObject }> }>;
}

const operations = operationsIn(CONTROLLERS);

describe('OpenAPI document', () => {
  const harness = new GatewayHarness();
  const ajv = new Ajv2020({ strict: false, allErrors: true });
  let document: Document;

  beforeAll(async () => {
    await harness.start();
    document = (await harness.get('/openapi.json', { key: null })).body as Document;
  });
  afterAll(() => harness.stop());

  it('is served as OpenAPI 3.1 without a key, at both paths', async () => {
    expect(document.openapi).toBe('3.1.0');
    expect((await harness.get('/swagger.json', { key: null })).body).toEqual(document);
  });

  it('names scope, service and a unique id of every operation', () => {
    const described = Object.values(document.paths).flatMap((methods) => Object.values(methods));
    expect(described).toHaveLength(operations.length);
    expect(new Set(described.map(({ operationId }) => operationId)).size).toBe(operations.length);
    for (const operation of described) {
      expect(operation['x-margay-scope']).toMatch(/^(\w+\.\w+|any|optional|public)$/);
      expect(operation['x-margay-service']).toMatch(/^(gateway|session|tool-executor)$/);
      expect(operation.summary.length).toBeGreaterThan(5);
    }
  });

  it('holds no reference that leads nowhere', () => {
    const references = JSON.stringify(document).matchAll(/"\$ref":"([^"]+)"/g);
    for (const [, reference = ''] of references) expect(resolve(document, reference)).toBeDefined();
  });

  describe.each(operations.map((operation) => [`${operation.method} ${operation.path}`, operation] as const))(
    '%s',
    (_, operation) => {
      it('answers its sample as described', async () => {
        const answer = await send(harness, operation);
        expect(answer.status).toBe(operation.sample.status);
        const described = document.paths[operation.path]?.[operation.method.toLowerCase()]?.responses[answer.status];
        const [type, content] = Object.entries(described?.content ?? {})[0] ?? [];
        if (type === undefined) return expect([answer.status, answer.text]).toEqual([204, '']);
        expect(answer.headers.get('content-type')).toContain(type);
        if (type === 'application/json') expectValid(content?.schema ?? {}, answer.body);
      });

      it('answers without a credential as described', async () => {
        if (operation.scope === 'public' || operation.scope === 'optional') return;
        const answer = await send(harness, operation, null);
        expect(answer.status).toBe(401);
        expectValid({ $ref: '#/components/schemas/MessageError' }, answer.body);
      });
    },
  );

  function expectValid(schema: JsonObject, body: unknown): void {
    const validate = ajv.compile({ ...schema, components: document.components });
    expect([validate(body), validate.errors]).toEqual([true, null]);
  }
});

/** Sends the operation's sample about a session made for it. */
async function send(harness: GatewayHarness, { method, path, sample, scope }: Operation, nobody?: null) {
  const key = nobody === null ? null : scope.startsWith('platform.') ? MASTER_TOKEN : undefined;
  const { session } = harness;
  const asking = await session.createSession();
  await session.accept(asking, 'go');
  await session.claim(asking);
  const ended = await session.createSession();
  await session.accept(ended, 'go');
  await session.claim(ended);
  await session.finish(ended);
  harness.workspaces.sandboxSession = await session.createSession();
  const made: Record<string, string> = {
    '{session_id}': await session.createSession(),
    '{asking_session_id}': asking,
    '{call_id}': await session.ask(asking),
    '{ended_session_id}': ended,
    '{project_id}': session.projects.id,
    '{worktree_id}': `wt:${session.projects.id}:gone`,
    '{workspace_id}': harness.workspaces.workspaceId,
    '{tenant}': 'default',
    '{sandbox_id}': harness.workspaces.sandboxId,
    '{secret_name}': secretFor(harness, method),
    '{blob_id}': await harness.session.blobs.put('default', Buffer.from('x'.repeat(500))),
  };
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => made[sample.path?.[name] ?? ''] ?? 'missing');
  const query = Object.entries(sample.query ?? {}).map(([name, value]): [string, string] => [name, fill(value, made)]);
  const search = query.length > 0 ? `?${new URLSearchParams(query).toString()}` : '';
  const { headers = {}, body } = sample;
  // A stream of many sessions has no end.
  if (path === '/api/stream' && key !== null) return harness.head(filled + search);
  const sent = typeof body === 'string' ? { rawBody: body } : { body };
  return harness.request(method, filled + search, { headers, ...sent, ...(key === undefined ? {} : { key }) });
}

/** There is one but where the sample is to make it. */
function secretFor({ secrets }: GatewayHarness, method: Operation['method']): string {
  if (method !== 'PUT') secrets.add('api');
  return method === 'PUT' ? 'another' : 'api';
}

const fill = (text: string, made: Record<string, string>) => text.replace(/\{\w+\}/, (name) => made[name] ?? name);

function resolve(document: Document, reference: string): unknown {
  const steps = reference.replace(/^#\//, '').split('/');
  return steps.reduce<unknown>((value, step) => (value as JsonObject | undefined)?.[step], document);
}

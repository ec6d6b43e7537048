import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ConflictError } from './secret-store';
import { KubernetesSecrets } from './kubernetes-secrets';

interface Call {
  method: string;
  path: string;
  type?: string;
  body?: unknown;
}

let folder: string;
let server: Server;
let calls: Call[];
let answers: { status: number; body: object }[];
let secrets: KubernetesSecrets;
const before = process.env.KUBECONFIG;

async function record(request: IncomingMessage): Promise<void> {
  let text = '';
  for await (const chunk of request) text += String(chunk);
  const { method = '', url: path = '', headers } = request;
  const type = headers['content-type'];
  calls.push({ method, path, ...(text && { type, body: JSON.parse(text) as unknown }) });
}

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'margay-kube-'));
  server = createServer((request, response) => {
    void record(request).then(() => {
      const { status, body } = answers.shift() ?? { status: 500, body: {} };
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  const config = {
    clusters: [{ name: 'c', cluster: { server: `http://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true } }],
    users: [{ name: 'u', user: {} }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
    'current-context': 'x',
  };
  process.env.KUBECONFIG = join(folder, 'config');
  await writeFile(process.env.KUBECONFIG, JSON.stringify(config));
  secrets = await KubernetesSecrets.open({ namespace: 'agents', instance: 'house' });
});
afterAll(async () => {
  if (before === undefined) delete process.env.KUBECONFIG;
  else process.env.KUBECONFIG = before;
  server.closeAllConnections();
  await new Promise((resolve) => server.close(resolve));
  await rm(folder, { recursive: true });
});
beforeEach(() => {
  calls = [];
  answers = [];
});

const answer = (status: number, body: object = { kind: 'Status', code: status }) => answers.push({ status, body });

describe('secrets of a cluster', () => {
  it('are read as text, with the version that the next write names', async () => {
    answer(200, { metadata: { name: 's', resourceVersion: '7' }, data: { key: 'ZWlucw==' } });
    expect(await secrets.find('s')).toEqual({ data: { key: 'eins' }, version: '7' });
    expect(calls).toEqual([{ method: 'GET', path: '/api/v1/namespaces/agents/secrets/s' }]);
  });

  it('may not be there', async () => {
    answer(404);
    expect(await secrets.find('s')).toBeUndefined();
  });

  it('are made with labels that say whose they are', async () => {
    answer(201, { metadata: { name: 's' } });
    await secrets.create('s', { key: 'eins' });
    expect(calls[0]).toMatchObject({
      method: 'POST',
      path: '/api/v1/namespaces/agents/secrets',
      body: { metadata: { name: 's', labels: { 'app.kubernetes.io/instance': 'house' } }, data: { key: 'ZWlucw==' } },
    });
  });

  it('are completed only in the version that was read', async () => {
    answer(200, { metadata: { name: 's' } });
    await secrets.patch('s', { key: 'eins' }, '7');
    expect(calls[0]).toMatchObject({
      method: 'PATCH',
      type: 'application/merge-patch+json',
      body: { metadata: { resourceVersion: '7' }, data: { key: 'ZWlucw==' } },
    });
  });

  it('say when somebody else was faster, and when the rights are missing', async () => {
    for (const status of [409, 409, 403]) answer(status);
    await expect(secrets.create('s', { key: 'eins' })).rejects.toBeInstanceOf(ConflictError);
    await expect(secrets.patch('s', { key: 'eins' }, '7')).rejects.toBeInstanceOf(ConflictError);
    await expect(secrets.create('s', { key: 'eins' })).rejects.toMatchObject({ reason: 'secret_forbidden' });
  });

  it('quote no answer of the API server', async () => {
    answer(422, { message: 'data: eins is bad' });
    const error = await secrets.create('s', { key: 'eins' }).catch((cause: unknown) => cause);
    expect(error).toMatchObject({ reason: 'kubernetes_unavailable' });
    expect((error as Error).message).toContain('answered 422');
    expect(JSON.stringify(error, Object.getOwnPropertyNames(error))).not.toContain('eins');
  });
});

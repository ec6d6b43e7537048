import { FakeGateway, QuickClock } from '@margay/testing';
import { MargayClient } from './index';

let gateway: FakeGateway;
let margay: MargayClient;
let asked: [method: string, path: string, query: string, body: unknown][];

/** Answers one request after the other with these. */
function answerWith(...bodies: unknown[]): void {
  gateway.interceptors.push(({ method, path, query, body }, response) => {
    asked.push([method, path, query.toString(), body]);
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(bodies.shift() ?? {}));
    return true;
  });
}

beforeEach(async () => {
  asked = [];
  gateway = await FakeGateway.start();
  margay = new MargayClient({ baseUrl: gateway.url, apiKey: gateway.apiKey, clock: new QuickClock() });
});
afterEach(() => gateway.close());

it('goes through all pages of workspaces', async () => {
  answerWith({ workspaces: [{ workspace_id: 'a' }], next_cursor: 'n' }, { workspaces: [], next_cursor: null });
  const ids: string[] = [];
  for await (const { workspace_id: id } of margay.workspaces.all()) ids.push(id);
  expect(ids).toEqual(['a']);
  expect(asked.map(([, path, query]) => [path, query])).toEqual([
    ['/api/workspaces', ''],
    ['/api/workspaces', 'cursor=n'],
  ]);
});

it('says what a workspace is to begin with, holds it and deletes it', async () => {
  answerWith();
  await margay.workspaces.begin('w', { kind: 'clone', url: 'https://git.example.com/a' }, { replace: true });
  await margay.workspaces.hold('w', true);
  await margay.workspaces.delete('w');
  await margay.workspaces.endSandbox('s');
  expect(asked).toEqual([
    ['POST', '/api/workspaces/w/content', '', { kind: 'clone', url: 'https://git.example.com/a', replace: true }],
    ['PATCH', '/api/workspaces/w', '', { legal_hold: true }],
    ['DELETE', '/api/workspaces/w', '', {}],
    ['DELETE', '/api/sandboxes/s', '', {}],
  ]);
});

it('sends a file as it is', async () => {
  answerWith({ workspace_id: 'w' });
  const file = new TextEncoder().encode('{"sent":"as it is"}');
  await margay.workspaces.upload('w', file, { filename: 'a.zip' });
  expect(asked).toEqual([['POST', '/api/workspaces/w/content', 'filename=a.zip', { sent: 'as it is' }]]);
});

it('takes snapshots, lists, restores and moves them', async () => {
  answerWith({ snapshots: [{ n: 2 }, { n: 1 }] }, { n: 3 }, { n: 1 }, { n: 3 }, { n: 3 });
  const { workspaces } = margay;
  expect((await workspaces.snapshots('w')).map(({ n }) => n)).toEqual([2, 1]);
  expect((await workspaces.snapshot('w')).n).toBe(3);
  expect((await workspaces.restore('w', { n: 1 })).n).toBe(1);
  await workspaces.restore('w');
  await workspaces.relocate('w');
  expect(asked).toEqual([
    ['GET', '/api/workspaces/w/snapshots', '', {}],
    ['POST', '/api/workspaces/w/snapshot', '', {}],
    ['POST', '/api/workspaces/w/restore', '', { n: 1 }],
    ['POST', '/api/workspaces/w/restore', '', {}],
    ['POST', '/api/workspaces/w/relocate', '', {}],
  ]);
});

it('makes a project that begins with something, once', async () => {
  answerWith({ project_id: 'p', workspace_id: 'w' });
  const made = await margay.createProject({ name: 'Shop', content: { kind: 'upload' } });
  expect(made.workspace_id).toBe('w');
  expect(asked).toEqual([['POST', '/api/v_projects', '', { name: 'Shop', content: { kind: 'upload' } }]]);
});

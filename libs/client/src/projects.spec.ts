import { FakeGateway, QuickClock } from '@margay/testing';
import { MargayClient } from './index';

let gateway: FakeGateway;
let margay: MargayClient;
let asked: [method: string, path: string, query: string, body: unknown][];

/** Answers everything with this. */
const answerWith = (status: number, body?: unknown) =>
  gateway.interceptors.push(({ method, path, query, body: sent }, response) => {
    asked.push([method, path, query.toString(), sent]);
    response
      .writeHead(status, { 'content-type': 'application/json' })
      .end(body === undefined ? '' : JSON.stringify(body));
    return true;
  });

beforeEach(async () => {
  asked = [];
  gateway = await FakeGateway.start();
  margay = new MargayClient({ baseUrl: gateway.url, apiKey: gateway.apiKey, clock: new QuickClock() });
});
afterEach(() => gateway.close());

it('lists, makes and removes worktrees of a project by any form of its name', async () => {
  answerWith(200, { worktrees: [{ branch: 'fix' }], branch: 'fix' });
  expect(await margay.worktrees('acme/shop')).toEqual([{ branch: 'fix' }]);
  expect(await margay.createWorktree('shop', { branch: 'fix', base: 'main' })).toMatchObject({ branch: 'fix' });
  await margay.deleteWorktree('shop', 'wt:shop:fix');
  await margay.deleteWorktree('shop', 'wt:shop:fix', { force: true });
  expect(asked).toEqual([
    ['GET', '/api/v_projects/acme%2Fshop/worktrees', '', {}],
    ['POST', '/api/v_projects/shop/worktrees', '', { branch: 'fix', base: 'main' }],
    ['DELETE', '/api/v_projects/shop/worktrees/wt%3Ashop%3Afix', '', {}],
    ['DELETE', '/api/v_projects/shop/worktrees/wt%3Ashop%3Afix', 'force=1', {}],
  ]);
});

it('takes an empty answer for the removal of a worktree', async () => {
  answerWith(204);
  await expect(margay.deleteWorktree('shop', 'wt:shop:fix')).resolves.toBeUndefined();
});

it('reads what a session is, and binds it to another project', async () => {
  const spec = { session_id: 's', spec: { project: 'shop' }, editable: {}, source: 'spec' };
  answerWith(200, spec);
  expect(await margay.session('s').spec()).toEqual(spec);
  expect(await margay.session('s').bind('shop')).toEqual(spec);
  expect(asked).toEqual([
    ['GET', '/api/sessions/s/spec', '', {}],
    ['PUT', '/api/sessions/s/project', '', { project: 'shop' }],
  ]);
});

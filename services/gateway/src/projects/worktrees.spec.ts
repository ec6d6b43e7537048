import { GatewayHarness } from '../spec/gateway-harness';

describe('worktrees', () => {
  const harness = new GatewayHarness();

  beforeAll(() => harness.start());
  afterAll(() => harness.stop());
  beforeEach(() => harness.session.projects.worktrees.clear());

  const asked = (method: string) => harness.session.calls.filter((call) => call.method === method).at(-1)?.request;
  const path = () => `/api/v_projects/${harness.session.projects.id}/worktrees`;
  const remove = (id: string, query = '') => harness.request('DELETE', `${path()}/${encodeURIComponent(id)}${query}`);
  const idOf = (branch: string) => `wt:${harness.session.projects.id}:${branch}`;

  it('are made with 201, listed, and removed with 204', async () => {
    const made = await harness.post(path(), { branch: 'fix', base: null });
    expect([made.status, made.body]).toEqual([
      201,
      expect.objectContaining({ project_id: idOf('fix'), branch: 'fix', managed: true, is_worktree: true }),
    ]);
    expect(asked('createWorktree')).toMatchObject({ branch: 'fix', base: '' });
    expect((await harness.get(path())).body).toEqual({ worktrees: [made.body] });
    expect(await remove(idOf('fix'))).toMatchObject({ status: 204, text: '' });
    expect(await remove(idOf('fix'))).toMatchObject({ status: 200, body: { status: 'already_absent' } });
  });

  it.each([
    ['?force=1', true],
    ['?force=', false],
    ['?force=no', false],
    ['', false],
  ])('are removed by force with %p: %p', async (query, force) => {
    await remove(idOf('gone'), query);
    expect(asked('deleteWorktree')).toMatchObject({ force });
  });

  it('answer faults as messages: 400, 404, 409', async () => {
    const message = { message: expect.any(String) };
    expect(await harness.post(path(), {})).toMatchObject({ status: 400, body: message });
    expect(await harness.post(path(), { branch: 7 })).toMatchObject({ status: 400, body: message });
    expect(await harness.post(path(), { branch: 'main' })).toMatchObject({ status: 409, body: message });
    expect(await harness.get('/api/v_projects/x/worktrees')).toMatchObject({ status: 404, body: message });
    expect(await remove('wt:other:fix')).toMatchObject({ status: 400, body: message });
    await harness.post(path(), { branch: 'dirty' });
    expect(await remove(idOf('dirty'))).toMatchObject({ status: 409, body: message });
    expect(await remove(idOf('dirty'), '?force=true')).toMatchObject({ status: 204 });
  });
});

import { GatewayHarness } from '../spec/gateway-harness';

describe('managed projects', () => {
  const harness = new GatewayHarness();

  beforeAll(() => harness.start());
  afterAll(() => harness.stop());

  const asked = (method: string) => harness.session.calls.filter((call) => call.method === method).at(-1)?.request;
  const path = () => `/api/v_projects/${harness.session.projects.id}`;

  it('are created with 201, what is null as absent', async () => {
    const { status, body } = await harness.post('/api/v_projects', { name: 'A', description: null, path: null });
    expect([status, body]).toEqual([
      201,
      expect.objectContaining({ name: 'A', path: '/workspace', is_worktree: false }),
    ]);
    await harness.post('/api/v_projects', { name: 'A', content: { kind: 'clone', url: 'x' }, path: '/srv' });
    const contentJson = JSON.stringify({ kind: 'clone', url: 'x' });
    expect(asked('createProject')).toMatchObject({ name: 'A', path: '/srv', contentKind: 'clone', contentJson });
  });

  it.each([[{}], [{ name: '' }], [{ name: 7 }], [{ name: 'A', content: 'empty' }]])(
    'are refused as a message: %j',
    async (sent) => {
      const { status, body } = await harness.post('/api/v_projects', sent);
      expect([status, body]).toEqual([400, { message: expect.stringMatching(/^Invalid input: '/) }]);
    },
  );

  it('change only what is named, and go with 204 and no body', async () => {
    const changed = await harness.request('PATCH', path(), { body: { name: 'B', path: '/x' } });
    expect([changed.status, changed.body]).toEqual([200, expect.objectContaining({ name: 'B', path: '/workspace' })]);
    expect(asked('updateProject')).toMatchObject({ name: 'B', description: undefined });
    expect(await harness.request('DELETE', path())).toMatchObject({ status: 204, text: '' });
  });

  it.each(['GET', 'PATCH', 'DELETE'])('answer %s of unknown ones with 404 as a message', async (method) => {
    const { status, body } = await harness.request(method, '/api/v_projects/x');
    expect([status, body]).toEqual([404, { message: 'project x not found' }]);
  });

  it('have branches, or a reason why not, also projects of the configuration', async () => {
    const { body } = await harness.get(`${path()}/branches`);
    expect(body).toEqual({ branches: ['main'], current_branch: null, branches_in_use: [], git_repo: true });
    expect((await harness.get('/api/v_projects/shop/branches')).body).toEqual({
      branches: [],
      git_repo: false,
      reason: 'not_git',
    });
    expect((await harness.get('/api/v_projects/x/branches')).status).toBe(404);
  });

  it('have no list of their own', async () => {
    expect((await harness.get('/api/v_projects')).status).toBe(404);
  });
});

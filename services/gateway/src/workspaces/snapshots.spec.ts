import { GatewayHarness } from '../spec/gateway-harness';

describe('snapshots of a workspace', () => {
  const harness = new GatewayHarness();
  beforeAll(() => harness.start());
  afterAll(() => harness.stop());

  const path = () => `/api/workspaces/${harness.workspaces.workspaceId}`;

  it('are listed, newest first', async () => {
    const { status, body } = await harness.get(`${path()}/snapshots`);
    expect(status).toBe(200);
    expect((body as { snapshots: { n: number }[] }).snapshots.map(({ n }) => n)).toEqual([2, 1]);
  });

  it('are taken, restored by number or the newest, and moved', async () => {
    expect((await harness.post(`${path()}/snapshot`, {})).body).toMatchObject({ n: 2, kind: 'delta' });
    expect((await harness.post(`${path()}/restore`, { n: 1 })).body).toMatchObject({ n: 1, kind: 'full' });
    expect((await harness.post(`${path()}/restore`, {})).body).toMatchObject({ n: 2 });
    expect((await harness.post(`${path()}/relocate`, {})).status).toBe(200);
    const { workspaceId } = harness.workspaces;
    expect(harness.snapshots.asked.slice(-3)).toEqual([
      { method: 'restore', request: { workspaceId, n: 1 } },
      { method: 'restore', request: { workspaceId } },
      { method: 'relocate', request: { workspaceId } },
    ]);
  });

  it('are not restored under the hands of a session', async () => {
    harness.snapshots.isInUse = true;
    const { status, headers } = await harness.post(`${path()}/restore`, {});
    harness.snapshots.isInUse = false;
    expect([status, headers.get('x-margay-reason')]).toEqual([409, 'workspace_in_use']);
  });

  it.each(['snapshots', 'snapshot', 'restore', 'relocate'])(
    'answer %s of unknown workspaces with 404',
    async (name) => {
      const target = `/api/workspaces/nothing/${name}`;
      const answer = name === 'snapshots' ? await harness.get(target) : await harness.post(target, {});
      expect([answer.status, answer.headers.get('x-margay-reason')]).toEqual([404, 'workspace_not_found']);
    },
  );

  it.each([{ n: 0 }, { n: 'two' }, { more: 1 }])('refuse to restore %j', async (body) => {
    expect((await harness.post(`${path()}/restore`, body)).status).toBe(422);
  });
});

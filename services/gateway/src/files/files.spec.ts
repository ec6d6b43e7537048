import { GatewayHarness } from '../spec/gateway-harness';

describe('GET /api/files', () => {
  const harness = new GatewayHarness();

  beforeAll(() => harness.start());
  afterAll(() => harness.stop());

  const asked = () => harness.session.calls.filter(({ method }) => method === 'listFiles').at(-1)?.request;

  it('asks for a project or a session, and says when the list is old', async () => {
    const { status, body } = await harness.get('/api/files?project=shop&q=a');
    expect([status, body]).toEqual([200, { files: ['src/a.ts'], attachments: [], stale: true }]);
    const session = await harness.session.createSession();
    expect((await harness.get(`/api/files?session=${session}`)).body).toEqual({ files: [], attachments: [] });
    expect(asked()).toMatchObject({ sessionId: session, project: '', query: '', limit: 200 });
  });

  it.each([
    ['0', 200],
    ['-4', 1],
    ['7.9', 7],
    ['9999', 2_000],
    ['many', 200],
  ])('takes a limit of %s as %d', async (limit, meant) => {
    await harness.get(`/api/files?project=shop&limit=${limit}`);
    expect(asked()).toMatchObject({ limit: meant });
  });

  it('answers 404 with the sentence of the reference for an unknown session', async () => {
    for (const id of ['f'.repeat(32), 'x'])
      expect(await harness.get(`/api/files?session=${id}`)).toMatchObject({
        status: 404,
        body: { message: 'Session not found.' },
      });
  });

  it('has nothing for an unknown project', async () => {
    expect((await harness.get('/api/files?project=nope')).body).toEqual({ files: [], attachments: [] });
  });
});

import { Readable } from 'node:stream';
import { GatewayHarness } from '../spec/gateway-harness';

describe('workspaces', () => {
  const harness = new GatewayHarness();

  beforeAll(() => harness.start());
  afterAll(() => harness.stop());

  const path = () => `/api/workspaces/${harness.workspaces.workspaceId}`;
  const asked = (method: string) => harness.workspaces.asked.filter((call) => call.method === method).at(-1);

  it('are listed in pages, and asked for as who calls', async () => {
    const { status, body } = await harness.get('/api/workspaces?limit=999&cursor=next');
    expect([status, body]).toEqual([
      200,
      { workspaces: [expect.objectContaining({ workspace_id: harness.workspaces.workspaceId })], next_cursor: null },
    ]);
    expect(asked('list')).toMatchObject({ request: { limit: 200, cursor: 'next' }, principal: 'user:ada' });
  });

  it('show their revision, and are changed and deleted at that one only', async () => {
    const { headers } = await harness.get(path());
    expect(headers.get('etag')).toBe('"3"');
    const changed = await harness.request('PATCH', path(), {
      body: { legal_hold: true },
      headers: { 'If-Match': '"3"' },
    });
    expect(changed.status).toBe(200);
    expect(asked('update')).toMatchObject({ request: { legalHold: true, ifMatch: '"3"' } });
    const moved = await harness.request('DELETE', path(), { headers: { 'If-Match': '"2"' } });
    expect([moved.status, moved.headers.get('x-margay-reason')]).toEqual([412, 'rev_moved']);
    const unquoted = await harness.request('DELETE', path(), { headers: { 'If-Match': '3' } });
    expect([unquoted.status, unquoted.headers.get('x-margay-reason')]).toEqual([422, 'validation']);
    for (const ifMatch of ['*', 'W/"3"'])
      expect((await harness.request('DELETE', path(), { headers: { 'If-Match': ifMatch } })).status).toBe(202);
    expect((await harness.request('DELETE', path())).status).toBe(202);
  });

  it.each([
    ['GET', ''],
    ['PATCH', ''],
    ['DELETE', ''],
    ['POST', '/content'],
  ])('answer %s of unknown ones with 404', async (method, more) => {
    const body = method === 'POST' ? { kind: 'empty' } : method === 'PATCH' ? {} : undefined;
    const answer = await harness.request(method, `/api/workspaces/nothing${more}`, body ? { body } : {});
    expect([answer.status, answer.headers.get('x-margay-reason')]).toEqual([404, 'workspace_not_found']);
  });

  it('take content that is said', async () => {
    const content = { kind: 'clone', url: 'https://git.example.com/shop', ref: 'main' };
    expect((await harness.post(`${path()}/content`, { ...content, replace: true })).status).toBe(202);
    const { sourceJson, replace } = asked('setContent')?.request as { sourceJson: string; replace: boolean };
    expect([JSON.parse(sourceJson), replace]).toEqual([{ ...content, submodules: false, lfs: false }, true]);
  });

  it.each([
    [{}],
    [{ kind: 'upload' }],
    [{ kind: 'clone' }],
    [{ kind: 'clone', url: 'file:///etc' }],
    [{ kind: 'clone', url: 'https://me:secret@git.example.com/a' }],
    [{ kind: 'clone', url: 'https://git.example.com/a', ref: '-x' }],
    [{ kind: 'empty', more: 1 }],
  ])('refuse %j as content', async (body) => {
    const answer = await harness.post(`${path()}/content`, body);
    expect([answer.status, answer.headers.get('x-margay-reason')]).toEqual([422, 'validation']);
  });

  it.each(['application/x-tar', 'application/zip', 'application/octet-stream'])(
    'take a file of %s, as it comes',
    async (type) => {
      const pieces = Array.from({ length: 5 }, () => Buffer.alloc(700_000));
      const response = await fetch(`${harness.url}${path()}/content?filename=a.tar&replace=true`, {
        method: 'POST',
        headers: { 'X-API-KEY': harness.key.text, 'Content-Type': type },
        body: Readable.toWeb(Readable.from(pieces)) as ReadableStream,
        duplex: 'half',
      });
      expect(response.status).toBe(202);
      expect(harness.workspaces.uploads.at(-1)).toEqual({ filename: 'a.tar', replace: true, bytes: 3_500_000 });
    },
  );

  it('refuse files where they are not expected, and keep answering', async () => {
    const headers = { 'Content-Type': 'application/zip' };
    const file = { rawBody: 'x'.repeat(2_000_000), headers };
    expect((await harness.request('POST', '/api/v_projects', file)).status).toBe(413);
    const unknown = await harness.request('POST', '/api/workspaces/nothing/content', file);
    expect([unknown.status, unknown.headers.get('x-margay-reason')]).toEqual([404, 'workspace_not_found']);
    expect((await harness.get(path())).status).toBe(200);
  });

  it('are not changed by viewers', async () => {
    const viewer = harness.session.addKey({ role: 'viewer', principal: 'user:eve' }).text;
    expect((await harness.request('GET', path(), { key: viewer })).status).toBe(200);
    for (const [method, more] of [
      ['PATCH', ''],
      ['DELETE', ''],
      ['POST', '/content'],
    ])
      expect((await harness.request(method ?? '', path() + more, { key: viewer, body: {} })).status).toBe(403);
  });
});

describe('sandboxes', () => {
  const harness = new GatewayHarness();

  beforeAll(() => harness.start());
  afterAll(() => harness.stop());

  const path = () => `/api/sandboxes/${harness.workspaces.sandboxId}`;

  it('are shown to who may see their session, and end by administrators only', async () => {
    harness.workspaces.sandboxSession = await harness.session.createSession();
    const member = harness.session.addKey({ role: 'member', principal: 'user:bob' }).text;
    const own = await harness.get('/api/sandboxes');
    expect(own.body).toEqual({ sandboxes: [expect.objectContaining({ sandbox_id: harness.workspaces.sandboxId })] });
    expect((await harness.request('GET', '/api/sandboxes', { key: member })).body).toEqual({ sandboxes: [] });
    const hidden = await harness.request('GET', path(), { key: member });
    expect([hidden.status, hidden.headers.get('x-margay-reason')]).toEqual([404, 'sandbox_not_found']);
    expect((await harness.request('DELETE', path(), { key: member })).status).toBe(403);
    expect((await harness.request('DELETE', path())).status).toBe(204);
    expect((await harness.request('GET', '/api/sandboxes/nothing')).status).toBe(404);
  });

  it('are listed with one question to session, however many they are', async () => {
    const { session, workspaces } = harness;
    workspaces.sandboxSession = await session.createSession();
    const theirs = await session.createSession('default', 'user:bob');
    const foreign = await session.createSession('other');
    workspaces.otherSessions = [theirs, theirs, foreign, 'f'.repeat(32), workspaces.sandboxSession];
    session.calls.length = 0;
    const member = session.addKey({ role: 'member', principal: 'user:bob' }).text;
    const shown = async (key?: string) => {
      const { body } = await harness.request('GET', '/api/sandboxes', key === undefined ? {} : { key });
      return (body as { sandboxes: { sandbox_id: string }[] }).sandboxes.map(({ sandbox_id: id }) => id);
    };
    expect(await shown(member)).toEqual(['other0', 'other1']);
    expect(await shown()).toEqual([workspaces.sandboxId, 'other0', 'other1', 'other4']);
    const asked = session.calls.map(({ method }) => method).filter((method) => method !== 'authenticate');
    expect(asked).toEqual(['listSessions', 'listSessions']);
  });
});

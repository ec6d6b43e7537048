import { GatewayHarness, MASTER_TOKEN } from '../spec/gateway-harness';

describe('a ticket', () => {
  const harness = new GatewayHarness();
  const realNow = Date.now;
  let aheadMs = 0;
  let id: string;

  beforeAll(async () => {
    jest.spyOn(Date, 'now').mockImplementation(() => realNow() + aheadMs);
    await harness.start();
  });
  beforeEach(async () => {
    id = await harness.session.createSession();
  });
  afterEach(() => {
    aheadMs = 0;
  });
  afterAll(async () => {
    await harness.stop();
    jest.restoreAllMocks();
  });

  const issue = async (body: Record<string, unknown> = {}, key = harness.key.text) => {
    const answer = await harness.post('/api/tickets', { purpose: 'stream', ...body }, { key });
    expect(answer.status).toBe(201);
    return answer.body as { ticket: string; expires_at: string };
  };
  const statusOf = async (path: string) => (await harness.get(path, { key: null })).status;
  const streamOf = (sessionId: string, ticket: string) => `/api/sessions/${sessionId}/stream?ticket=${ticket}`;

  it('opens a stream, for less than a minute', async () => {
    const { ticket, expires_at: expiresAt } = await issue();
    expect(ticket).toMatch(/^mt_[\w.-]+$/);
    const leftMs = Date.parse(expiresAt) - Date.now();
    expect(leftMs).toBeGreaterThan(50_000);
    expect(leftMs).toBeLessThanOrEqual(60_000);
    expect(await statusOf(streamOf(id, ticket))).toBe(200);
    aheadMs = 61_000;
    expect(await statusOf(streamOf(id, ticket))).toBe(401);
  });

  it('opens what it was made for, and nothing else', async () => {
    const blobId = await harness.session.blobs.put('default', Buffer.from('long text'));
    const blob = (ticket: string) => `/api/sessions/${id}/blobs/${blobId}?ticket=${ticket}`;
    const [stream, download] = [(await issue()).ticket, (await issue({ purpose: 'blob' })).ticket];
    expect(await statusOf(blob(download))).toBe(200);
    expect(await statusOf(blob(stream))).toBe(401);
    expect(await statusOf(streamOf(id, download))).toBe(401);
    for (const path of [`/api/sessions/${id}/events`, '/api/sessions', '/api/system'])
      expect(await statusOf(`${path}?ticket=${stream}`)).toBe(401);
  });

  it('opens the sessions it names only; others look absent', async () => {
    const other = await harness.session.createSession();
    const { ticket } = await issue({ session_ids: [id, 'f'.repeat(32)] });
    expect(await statusOf(streamOf(id, ticket))).toBe(200);
    expect(await statusOf(streamOf(other, ticket))).toBe(404);
  });

  it('for a hundred sessions fits a URL with their hundred ids', async () => {
    const ids = Array.from({ length: 100 }, (_, n) => n.toString(16).padStart(32, '0'));
    const { ticket } = await issue({ session_ids: ids });
    const sessions = ids.map((session) => `${session}:1234567`).join(',');
    expect(`GET /api/stream?sessions=${sessions}&user=1&ticket=${ticket} HTTP/1.1`.length).toBeLessThan(8_000);
  });

  it('reaches no further than its key', async () => {
    const foreign = await harness.session.createSession('other-tenant');
    expect(await statusOf(streamOf(foreign, (await issue()).ticket))).toBe(404);
    const writeOnly = harness.session.addKey({ scopes: ['sessions.create'], allScopes: false });
    const refused = await harness.post('/api/tickets', { purpose: 'stream' }, { key: writeOnly.text });
    expect(refused.status).toBe(403);
  });

  it('is worth nothing once its key is revoked, and its streams are cut', async () => {
    const key = harness.session.addKey();
    const { ticket } = await issue({}, key.text);
    await harness.session.accept(id, 'hi');
    const reader = await harness.follow(streamOf(id, ticket), {});
    await reader.untilType('session_state');
    harness.session.revokeKey(key);
    harness.bus.deliver('margay.config.keys', '{}');
    await reader.untilEnd();
    expect(reader.ended).toBe('cut');
    expect(await statusOf(streamOf(id, ticket))).toBe(401);
  });

  it('stands for the platform operator too, without holding anything of the token', async () => {
    const { ticket } = await issue({}, MASTER_TOKEN);
    expect(await statusOf(streamOf(id, ticket))).toBe(200);
    const claims = JSON.parse(Buffer.from(ticket.split('.')[1] ?? '', 'base64url').toString()) as object;
    expect(Object.keys(claims)).not.toContain('keySha256');
  });

  it('is refused with anything changed, and beside a key that is refused', async () => {
    const { ticket } = await issue({ session_ids: [id] });
    const [head = '', claims = '', signature = ''] = ticket.split('.');
    const opened = { ...(JSON.parse(Buffer.from(claims, 'base64url').toString()) as object), sessions: undefined };
    const widened = `${head}.${Buffer.from(JSON.stringify(opened)).toString('base64url')}.${signature}`;
    for (const text of [widened, ticket.slice(3), `${ticket}x`, 'mt_', 'x'.repeat(5_000), `${ticket}&ticket=${ticket}`])
      expect(await statusOf(streamOf(id, text))).toBe(401);
    expect(await statusOf(`${streamOf(id, ticket)}&api_key=nonsense`)).toBe(401);
  });

  it('of a purpose that nothing serves yet is not made', async () => {
    for (const purpose of ['terminal', 'ide']) {
      const answer = await harness.post('/api/tickets', { purpose });
      expect(answer.status).toBe(404);
      expect(answer.body).toMatchObject({ error: { code: 'feature_off', status: 404 } });
    }
  });

  it.each([
    [{}],
    [{ purpose: 'anything' }],
    [{ purpose: 'stream', session_ids: [] }],
    [{ purpose: 'stream', session_ids: ['x'] }],
    [{ purpose: 'stream', session_ids: Array.from({ length: 101 }, () => 'a'.repeat(32)) }],
    [{ purpose: 'stream', more: 1 }],
  ])('is not made of %j', async (body) => {
    const answer = await harness.post('/api/tickets', body);
    expect([answer.status, answer.headers.get('x-margay-reason')]).toEqual([422, 'validation']);
  });

  it('never comes into the log', async () => {
    const { ticket } = await issue();
    await statusOf(streamOf(id, ticket));
    await statusOf(`/api/nowhere?ticket=${ticket}`);
    expect(harness.logLines.join('')).not.toContain(ticket.slice(-30));
    expect(harness.logLines.join('')).not.toContain('ticket=');
  });
});

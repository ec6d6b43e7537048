import { GatewayHarness } from '../spec/gateway-harness';

interface Event {
  ts: string;
  type: string;
  payload: Record<string, unknown>;
}

const harness = new GatewayHarness();
beforeAll(() => harness.start());
afterAll(() => harness.stop());

const path = (sessionId: string, route: string): string => `/api/sessions/${sessionId}/${route}`;
const fork = (sessionId: string, body: unknown = {}, key?: string) =>
  harness.request('POST', path(sessionId, 'fork'), { body, ...(key === undefined ? {} : { key }) });

async function endedSession(): Promise<string> {
  const { session } = harness;
  const sessionId = await session.createSession();
  await session.accept(sessionId, 'go');
  await session.claim(sessionId);
  await session.finish(sessionId);
  return sessionId;
}

async function eventsOf(sessionId: string): Promise<Event[]> {
  return ((await harness.get(path(sessionId, 'events'))).body as { events: Event[] }).events;
}

describe('POST /fork', () => {
  it('answers 201 with the new session, which has the events of the old one and its own', async () => {
    const source = await endedSession();
    const { status, body } = await fork(source, { model: 'other', compact: false });
    expect([status, body]).toEqual([201, { session_id: expect.any(String), forked_from: source, forked_at: null }]);
    const { session_id: sessionId } = body as { session_id: string };
    const before = await eventsOf(source);
    const after = await eventsOf(sessionId);
    expect(after.slice(0, before.length)).toEqual(before);
    expect(after.at(-1)).toMatchObject({ type: 'context', payload: { forked_from: source, model: 'other' } });
  });

  it('copies up to the event that is named', async () => {
    const source = await endedSession();
    const user = (await eventsOf(source)).find(({ type }) => type === 'user');
    const { body } = await fork(source, { from_ts: user?.ts });
    expect(body).toMatchObject({ forked_at: user?.ts });
    const { session_id: sessionId } = body as { session_id: string };
    expect((await eventsOf(sessionId)).at(-1)?.payload).toMatchObject({ forked_at: user?.ts });
  });

  it('refuses in the shape of the reference: running, over, unknown time, unknown session', async () => {
    const running = await harness.session.createSession();
    await harness.session.accept(running, 'go');
    expect(await fork(running)).toMatchObject({ status: 409, body: { message: 'Cannot fork a running session.' } });
    const source = await endedSession();
    expect(await fork(source, { from_ts: 'never' })).toMatchObject({
      status: 400,
      body: { message: expect.any(String) },
    });
    expect(await fork('f'.repeat(32))).toMatchObject({ status: 404 });
    await harness.request('POST', path(source, 'terminate'), {});
    expect(await fork(source)).toMatchObject({ status: 410, body: { error: { code: 'session_terminated' } } });
  });

  it('hands over the key, the tag and what asks for compaction', async () => {
    const source = await endedSession();
    const headers = { 'idempotency-key': 'k' };
    await harness.request('POST', path(source, 'fork'), { headers, body: { compact: 'true', tag: 't' } });
    expect(harness.session.calls.at(-1)).toMatchObject({
      method: 'forkSession',
      request: { idempotencyKey: 'k', compact: true, tag: 't' },
    });
  });
});

describe('POST /api/sessions with fork_from', () => {
  const create = (body: unknown) => harness.request('POST', '/api/sessions', { body });

  it('makes a fork, up to a time where one is named', async () => {
    const source = await endedSession();
    const user = (await eventsOf(source)).find(({ type }) => type === 'user');
    const { status, body } = await create({ fork_from: source, fork_at_ts: user?.ts, context: { model: 'other' } });
    expect(status).toBe(200);
    const { session_id: sessionId } = body as { session_id: string };
    const forked = { forked_from: source, forked_at: user?.ts, model: 'other' };
    expect((await eventsOf(sessionId)).at(-1)?.payload).toEqual(forked);
  });

  it('refuses what is no session', async () => {
    expect(await create({ fork_from: 'f'.repeat(32) })).toMatchObject({ status: 404 });
  });
});

describe('GET /verify', () => {
  it('answers how many commits are in order, and the hash that stands for them', async () => {
    const source = await endedSession();
    const { status, body } = await harness.get(path(source, 'verify'));
    expect([status, body]).toEqual([200, { ok: true, commits: 4, head_hash: expect.stringMatching(/^[0-9a-f]{64}$/) }]);
    expect(await harness.get(path('f'.repeat(32), 'verify'))).toMatchObject({ status: 404 });
  });

  it('names the first commit that is not what was stored', async () => {
    const source = await endedSession();
    const { store } = harness.session;
    const read = store.range.bind(store);
    jest.spyOn(store, 'range').mockImplementation(async function* (sessionId, from, to) {
      for await (const document of read(sessionId, from, to))
        yield document.c === 3 ? { ...document, ts0: 1 } : document;
    });
    const { body } = await harness.get(path(source, 'verify'));
    jest.restoreAllMocks();
    expect(body).toMatchObject({ ok: false, first_bad: 3, problem: expect.any(String) });
  });
});

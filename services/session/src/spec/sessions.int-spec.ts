import { randomBytes } from 'node:crypto';
import { sessionsPb } from '@margay/contracts';
import { principalOf, SessionHarness } from './session-harness';
import { ScriptedRunner } from './scripted-runner';

const harness = new SessionHarness();
const { owner } = harness;
const ada = principalOf('default', 'user:ada2', 'member');
const bob = principalOf('default', 'user:bob', 'member');

beforeAll(
  () =>
    harness.start({ MARGAY_PROJECTS: JSON.stringify({ shop: { path: '/tmp' } }), MARGAY_ALLOW_EXTERNAL_CWD: 'true' }),
  600_000,
);
afterAll(() => harness.stop());

const accept = (fields: Partial<sessionsPb.AcceptRunRequest>, principal = owner) =>
  harness.sessions.acceptRun(sessionsPb.AcceptRunRequest.fromPartial({ text: 'hello', ...fields }), { principal });
const list = async (fields: Partial<sessionsPb.ListSessionsRequest>, principal = owner) => {
  const request = sessionsPb.ListSessionsRequest.fromPartial(fields);
  const { summariesJson } = await harness.sessions.listSessions(request, { principal });
  return summariesJson.map((json) => JSON.parse(json) as { session_id: string; tags?: string[] });
};

describe('a query that is wrong in itself', () => {
  const faults: Partial<sessionsPb.AcceptRunRequest>[] = [
    { project: 'unknown' },
    { cwd: '/no/such/folder' },
    { contextJson: '{"project":"unknown"}' },
    { contextJson: '[]' },
    { contextJson: '{' },
    { attachmentsJson: '{}' },
  ];

  it.each(faults)('is refused for it where the session could take a run: %p', async (fault) => {
    const sessionId = await harness.createSession();
    await expect(accept({ sessionId, ...fault })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
    expect(await harness.state(sessionId)).toMatchObject({ running: false });
  });

  it.each(faults)('is told first that the session is busy, or terminated: %p', async (fault) => {
    const sessionId = await harness.createSession();
    await harness.accept(sessionId, 'first');
    await expect(accept({ sessionId, ...fault })).rejects.toMatchObject({ reason: 'session_running' });
    await harness.sessions.terminateSession({ sessionId }, { principal: owner });
    await expect(accept({ sessionId, ...fault })).rejects.toMatchObject({ reason: 'session_terminated' });
  });
});

describe('the workspace of a session', () => {
  const contextOf = async (sessionId: string): Promise<Record<string, unknown>> => {
    const { summaryJson } = await harness.sessions.getSession({ sessionId }, { principal: owner });
    return (JSON.parse(summaryJson) as { context: Record<string, unknown> }).context;
  };

  it('is the first project named; later ones and their folders are ignored', async () => {
    const sessionId = await harness.createSession();
    await accept({ sessionId, project: 'shop' });
    await harness.sessions.cancelRun({ sessionId, idempotencyKey: '' }, { principal: owner });
    await accept({ sessionId, project: 'unknown', cwd: '/no/such', contextJson: '{"project":"other","cwd":"/x"}' });
    const context = await contextOf(sessionId);
    expect(context).toMatchObject({ project: 'shop' });
    expect(context).not.toHaveProperty('cwd');
  });

  it('is asked for at the first run where the creation named an unknown project', async () => {
    const sessionId = await harness.createSession(owner, { project: 'shup' });
    await expect(accept({ sessionId })).rejects.toMatchObject({
      reason: 'unknown_project',
      message: expect.stringContaining("did you mean 'shop'") as string,
    });
    await accept({ sessionId, project: 'shop' });
    expect(await contextOf(sessionId)).toMatchObject({ project: 'shop' });
  });
});

describe('a tag', () => {
  it('finds its session in lists, also before the first run, for those who may see it', async () => {
    const sessionId = await harness.createSession(ada, { sessionTag: 'wiki:42' });
    expect(await list({ tag: 'wiki:42' }, ada)).toMatchObject([{ session_id: sessionId, tags: ['wiki:42'] }]);
    expect(await list({ tag: 'wiki:42' }, bob)).toEqual([]);
    expect(await list({ tag: 'unknown' }, ada)).toEqual([]);
    await accept({ sessionId }, ada);
    // Lists are projections: they follow.
    const listed = async () => (await list({}, ada)).find(({ session_id }) => session_id === sessionId);
    while (!(await listed())) await new Promise((resolve) => setTimeout(resolve, 20));
    expect(await listed()).toMatchObject({ tags: ['wiki:42'] });
  });

  it('of somebody else says neither whose it is nor its id', async () => {
    const sessionId = await harness.createSession(ada, { sessionTag: 'private' });
    const refused = harness.createSession(bob, { sessionTag: 'private' });
    await expect(refused).rejects.toMatchObject({ code: 'NOT_FOUND', reason: 'session_not_found' });
    await expect(refused).rejects.not.toMatchObject({ message: expect.stringContaining(sessionId) as string });
  });

  it('whose session was reserved but never written is finished by the next who asks, once', async () => {
    const reserved = randomBytes(16).toString('hex');
    const command = {
      kind: 'create',
      commitId: `create:${reserved}`,
      tenantId: 'default',
      owner: owner.principal,
      tag: 'half',
      binding: { project: null, cwd: null },
      context: { model: 'm' },
    };
    const row = { _id: 'default/half', tenantId: 'default', sessionId: reserved, commandJson: JSON.stringify(command) };
    await (await harness.db()).collection<typeof row>('tags').insertOne(row);
    const made = await Promise.all([1, 2, 3].map(() => harness.createSession(owner, { sessionTag: 'half' })));
    expect(new Set(made)).toEqual(new Set([reserved]));
    expect((await harness.events(reserved)).map(({ type }) => type)).toEqual(['session', 'context']);
  });
});

describe('sessions that are named', () => {
  it('are listed where the caller may see them, also before their first run', async () => {
    const own = await harness.createSession(ada);
    const other = await harness.createSession(ada);
    const theirs = await harness.createSession(bob);
    const named = async (sessionIds: string[], principal = ada) =>
      (await list({ sessionIds }, principal)).map(({ session_id }) => session_id).sort();
    const rows = (await harness.db()).collection<{ _id: string }>('sessions');
    const written = () => rows.countDocuments({ _id: { $in: [own, other, theirs] } });
    while ((await written()) < 3) await new Promise((resolve) => setTimeout(resolve, 20));
    expect(await named([own, theirs, 'f'.repeat(32)])).toEqual([own]);
    expect(await named([own, theirs], owner)).toEqual([own, theirs].sort());
  });
});

describe('a text of 400,000 characters', () => {
  const text = `begin ${'ž'.repeat(400_000)} end`;

  it('opens a run: whole for the runner and the reader of its blob, a preview in the event', async () => {
    const runner = new ScriptedRunner(harness.runners, 'long', harness.pool);
    const sessionId = await harness.createSession();
    await accept({ sessionId, text });
    const journal = await runner.openJournal(await runner.assignOf(sessionId));
    expect(journal.records.find(({ kind }) => kind === 'user')?.['text']).toBe(text);
    const user = (await harness.events(sessionId)).find(({ type }) => type === 'user');
    expect(user?.payload).toMatchObject({ text_truncated: true, text_blob: { bytes: Buffer.byteLength(text) } });
    expect(String(user?.payload['text'])).toHaveLength(60_000);
    await harness.sessions.sendMessage(sessionsPb.SendMessageRequest.fromPartial({ sessionId, text }), {
      principal: owner,
    });
    expect(await journal.messages.take()).toMatchObject({ $case: 'inbox', value: { items: [{ text }] } });
    expect(await journal.finish(text, 1)).toMatchObject({ $case: 'committed' });
    const [assistant, completion] = (await harness.events(sessionId)).slice(-2);
    expect(assistant).toMatchObject({ type: 'assistant', payload: { text_truncated: true } });
    expect(completion).toMatchObject({ type: 'completion', payload: { task_result_truncated: true } });
    journal.close();
    runner.detach();
  });

  it('is read in ranges by those who may see the session, and by no other tenant', async () => {
    const sessionId = await harness.createSession();
    await accept({ sessionId, text });
    const user = (await harness.events(sessionId)).find(({ type }) => type === 'user');
    const { id: blobId } = user?.payload['text_blob'] as { id: string };
    const read = async (request: Partial<sessionsPb.ReadBlobRequest>, principal = owner): Promise<string> => {
      const chunks: Uint8Array[] = [];
      const asked = sessionsPb.ReadBlobRequest.fromPartial({ sessionId, blobId, ...request });
      for await (const { chunk } of harness.sessions.readBlob(asked, { principal })) chunks.push(chunk);
      return Buffer.concat(chunks).toString();
    };
    expect(await read({ offset: 0, length: 6 })).toBe('begin ');
    expect(await read({ offset: Buffer.byteLength(text) - 4, length: 100 })).toBe(' end');
    expect(await read({ offset: 10_000_000, length: 1 })).toBe('');
    expect((await read({})).length).toBe(text.length);
    await expect(read({}, bob)).rejects.toMatchObject({ reason: 'session_not_found' });
    const foreign = principalOf('0123456789abcdef', 'user:eve', 'owner');
    await expect(read({}, foreign)).rejects.toMatchObject({ reason: 'session_not_found' });
    await expect(read({ blobId: 'ff'.repeat(32) })).rejects.toMatchObject({ reason: 'blob_not_found' });
  });
});

describe('who may do what', () => {
  it('lets a viewer look and nothing else', async () => {
    const viewer = principalOf('default', 'user:vic', 'viewer');
    await expect(harness.createSession(viewer)).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
    const sessionId = await harness.createSession();
    await expect(accept({ sessionId }, viewer)).rejects.toMatchObject({ reason: 'session_not_found' });
  });

  it('takes from a key what its scopes leave out', async () => {
    const sessionId = await harness.createSession(ada);
    const narrow = { ...principalOf('default', 'svc:ci', 'admin'), scopes: ['sessions.read'] };
    await expect(harness.events(sessionId, narrow)).rejects.toMatchObject({ reason: 'session_not_found' });
    expect(await harness.events(sessionId, { ...narrow, scopes: ['sessions.*'] })).not.toEqual([]);
  });

  it('lets only the gateway probe, and tells it which sessions went on', async () => {
    const [first, second] = [await harness.createSession(), await harness.createSession()];
    await harness.accept(first, 'hello');
    const probes = [
      { sessionId: first, c: 2 },
      { sessionId: second, c: 2 },
      { sessionId: 'unknown', c: 1 },
    ];
    const gateway = { v: 1, iss: 'gateway', tenantId: 'default', principal: 'system:gateway', role: 'member' } as const;
    expect(await harness.sessions.probeCommits({ probes }, { principal: { ...gateway, scopes: null } })).toEqual({
      sessionIds: [first],
    });
    await expect(harness.sessions.probeCommits({ probes }, { principal: owner })).rejects.toMatchObject({
      reason: 'gateway_only',
    });
  });

  it('ends lists where they become unbounded', async () => {
    expect(await list({ limit: 0 })).toEqual([]);
    expect(await list({ limit: 1_000_000 })).toBeInstanceOf(Array);
  });
});

describe('how sandboxes are kept apart', () => {
  it('is said to people where it is not the usual way', async () => {
    harness.isolation = 'none';
    const replica = await harness.addReplica();
    harness.isolation = 'bwrap';
    const accepted = async (): Promise<Record<string, unknown> | undefined> => {
      const { sessionId } = await replica.sessions.createSession(sessionsPb.CreateSessionRequest.fromPartial({}), {
        principal: owner,
      });
      await replica.sessions.acceptRun(sessionsPb.AcceptRunRequest.fromPartial({ sessionId, text: 'x' }), {
        principal: owner,
      });
      return (await harness.events(sessionId)).find(({ type }) => type === 'run_accepted')?.payload;
    };
    let payload = await accepted();
    for (let i = 0; i < 50 && payload?.['sandbox'] === undefined; i++) payload = await accepted();
    expect(payload).toMatchObject({ sandbox: 'none' });
    await replica.stop();
    const usual = await harness.createSession();
    await harness.accept(usual, 'x');
    const event = (await harness.events(usual)).find(({ type }) => type === 'run_accepted');
    expect(event?.payload).not.toHaveProperty('sandbox');
  });
});

import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { createLogger } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import { answer, byConversation, callTools } from '@margay/testing';
import { PlatformHarness } from './harness';

jest.setTimeout(120_000);

const margay = new PlatformHarness({ mode: 'combined' });
const logger = createLogger({ service: 'e2e', level: 'off' });
const dist = join(__dirname, '../../dist');
let mongo: MongoConnection;

beforeAll(async () => {
  await margay.start();
  mongo = new MongoConnection({ url: margay.storeUrl, database: margay.database, logger, name: 'e2e' });
  await mongo.ready(60_000);
}, 600_000);
afterAll(async () => {
  await mongo?.close();
  await margay.stop();
});

interface Event {
  ts: string;
  type: string;
  seq: number;
  payload: Record<string, unknown>;
}

const rows = (name: string) => mongo.connection.collection<{ _id: string }>(name);

async function eventsOf(sessionId: string): Promise<Event[]> {
  return (await margay.storedFrames(sessionId)).map((text) => JSON.parse(text) as Event);
}

const withoutNumber = ({ seq: _seq, ...event }: Event): Omit<Event, 'seq'> => event;

/** Runs a program of the bundle. */
function run(bundle: string, args: string[], env: NodeJS.ProcessEnv): Promise<{ code: number; out: string }> {
  return new Promise((resolve) => {
    const child = execFile(
      process.execPath,
      [join(dist, bundle), ...args],
      { env: { PATH: process.env['PATH'], ...env } },
      (_, out) => resolve({ code: child.exitCode ?? -1, out }),
    );
  });
}

/** A command of an operator, straight against the store. */
const operate = (...args: string[]) =>
  run('margay.cjs', args, { MARGAY_MONGODB_URL: margay.storeUrl, MARGAY_MONGODB_DATABASE: margay.database });

/** A session whose one run has read a file. */
async function askedSession(): Promise<string> {
  margay.script(
    byConversation(({ results }) =>
      results.length === 0
        ? callTools({ name: 'read_file', arguments: { path: 'a.txt' } })
        : answer(`the file says: ${results[0]?.content}`),
    ),
  );
  const session = await margay.sessionWith({ 'a.txt': 'forty-two' });
  await (await session.query('what does the file say?')).result();
  return session.id;
}

const post = (path: string, body: unknown, key?: string) =>
  margay.request('POST', path, body, key === undefined ? {} : { 'idempotency-key': key });

describe('a fork', () => {
  it('goes on with the conversation of its source, in a session of its own', async () => {
    const source = await askedSession();
    const { status, body } = await post(`/api/sessions/${source}/fork`, { tag: 'e2e fork' });
    expect([status, body]).toEqual([201, { session_id: expect.any(String), forked_from: source, forked_at: null }]);
    const { session_id: id } = body as { session_id: string };
    const before = await eventsOf(source);
    expect((await eventsOf(id)).map(withoutNumber).slice(0, before.length)).toEqual(before.map(withoutNumber));

    margay.script(() => answer('as I said'));
    const asked = margay.model.requests.length;
    expect(await (await margay.client.session(id).query('again?')).result()).toMatchObject({ text: 'as I said' });
    const heard = JSON.stringify(margay.model.requests[asked]?.messages);
    for (const said of ['what does the file say?', 'forty-two', 'again?']) expect(heard).toContain(said);
    // The source has heard nothing of it.
    expect(await eventsOf(source)).toEqual(before);
    const listed = (await margay.request('GET', '/api/sessions?tag=e2e%20fork')).body as {
      sessions: { session_id: string }[];
    };
    expect(listed.sessions.map((row) => row.session_id)).toEqual([id]);

    const created = await post('/api/sessions', { fork_from: 'e2e fork' });
    const { session_id: second } = created.body as { session_id: string };
    expect((await eventsOf(second)).at(-1)?.payload).toEqual({ forked_from: id });
  });

  it('at an answer leaves out what came later, also when its request is repeated', async () => {
    const source = await askedSession();
    const said = (await eventsOf(source)).find(({ type }) => type === 'assistant');
    margay.script(() => answer('later'));
    await (await margay.client.session(source).query('and later?')).result();
    const path = `/api/sessions/${source}/fork`;
    const first = await post(path, { from_ts: said?.ts }, 'once');
    const again = await post(path, { from_ts: said?.ts }, 'once');
    expect(again.body).toEqual(first.body);
    expect([again.status, again.headers.get('idempotency-replayed')]).toEqual([201, 'true']);
    const { session_id: id } = first.body as { session_id: string };
    expect(first.body).toMatchObject({ forked_at: said?.ts });
    expect((await eventsOf(id)).map(({ type }) => type).slice(-4)).toEqual(['assistant', 'completion', 'session', 'context']); // prettier-ignore
    expect(JSON.stringify(await eventsOf(id))).not.toContain('later');
  });

  it.each([
    ['its first commit', 'session.after-insert=kill?fork.1', null],
    ['its last commit, before it was visible', 'session.after-insert=kill?forked_from', 'true'],
  ])('that broke off after %s is finished by the repeat of its request', async (_, fault, replayed) => {
    const source = await askedSession();
    await margay.platform.restart('control', { env: { MARGAY_FAULT_POINTS: fault } });
    const path = `/api/sessions/${source}/fork`;
    await expect(post(path, { tag: fault }, fault)).rejects.toThrow('fetch failed');
    await margay.platform.restart('control');
    const { status, body, headers } = await post(path, { tag: fault }, fault);
    expect([status, headers.get('idempotency-replayed')]).toEqual([201, replayed]);
    const { session_id: id } = body as { session_id: string };
    const types = (await eventsOf(id)).map(({ type }) => type);
    expect(types).toEqual([...(await eventsOf(source)).map(({ type }) => type), 'session', 'context']);
    expect((await margay.request('GET', `/api/sessions/${id}/verify`)).body).toMatchObject({ ok: true, commits: 2 });
    const listed = (await margay.request('GET', '/api/sessions')).body as { sessions: { session_id: string }[] };
    expect(listed.sessions.filter((row) => row.session_id === id)).toHaveLength(1);
    expect(await rows('forks').findOne({ _id: id })).toBeNull();
  });

  it('is refused while its source runs, of one that is over, and with what is not supported yet', async () => {
    const source = await askedSession();
    margay.script(() => ({ hang: true }));
    await margay.client.session(source).query('go');
    const path = `/api/sessions/${source}/fork`;
    expect(await post(path, {})).toMatchObject({ status: 409, body: { message: 'Cannot fork a running session.' } });
    expect(await margay.client.session(source).cancel()).toBe(true);
    expect(await post(path, { from_ts: '2001-01-01T00:00:00.000000+00:00' })).toMatchObject({ status: 400 });
    expect(await post(path, { compact: true })).toMatchObject({ status: 400 });
    await post(`/api/sessions/${source}/terminate`, {});
    expect(await post(path, {})).toMatchObject({ status: 410 });
  });
});

describe('verification', () => {
  it('finds a changed, a missing and a swapped commit, over REST, in the command line and as an operator', async () => {
    const id = await askedSession();
    const cli = () => run('cli.cjs', ['verify', id, '--json'], { MARGAY_URL: margay.platform.gatewayUrl, MARGAY_API_KEY: margay.platform.apiKey, MARGAY_HOME: margay.home }); // prettier-ignore
    const rest = async () => (await margay.request('GET', `/api/sessions/${id}/verify`)).body;
    const commits = rows('commits');
    const all = await commits
      .find({ sessionId: id } as never)
      .sort({ _id: 1 })
      .toArray();
    const good = { ok: true, commits: all.length, head_hash: expect.stringMatching(/^[0-9a-f]{64}$/) };
    expect(await rest()).toEqual(good);
    expect(await cli()).toMatchObject({ code: 0 });

    const [third, fourth] = all.slice(2) as [{ _id: string; ts0: number }, { _id: string; ts0: number }];
    const damages: [() => Promise<unknown>, () => Promise<unknown>][] = [
      [
        () => commits.updateOne({ _id: third._id }, { $set: { ts0: third.ts0 + 1 } }),
        () => commits.replaceOne({ _id: third._id }, third),
      ],
      [() => commits.deleteOne({ _id: third._id }), () => commits.insertOne(third)],
      [
        async () => {
          await commits.deleteOne({ _id: third._id });
          await commits.deleteOne({ _id: fourth._id });
          await commits.insertOne({ ...fourth, _id: third._id });
          await commits.insertOne({ ...third, _id: fourth._id });
        },
        async () => {
          for (const { _id } of [third, fourth]) await commits.deleteOne({ _id });
          await commits.insertMany([third, fourth]);
        },
      ],
    ];
    for (const [damage, repair] of damages) {
      await damage();
      expect(await rest()).toMatchObject({ ok: false, commits: 2, first_bad: 3, problem: expect.any(String) });
      const told = await operate('verify', '--session', id);
      expect(told).toEqual({ code: 1, out: expect.stringContaining(`session ${id}: commit 3 is bad`) });
      if (repair === damages.at(-1)?.[1]) {
        const { code, out } = await cli();
        expect([code, JSON.parse(out)]).toMatchObject([1, { session_id: id, first_bad: 3 }]);
      }
      await repair();
    }
    expect(await rest()).toEqual(good);
    expect(await operate('verify', '--all')).toEqual({
      code: 0,
      out: expect.stringContaining(' 0 of them not in order'),
    });
  });
});

describe('rebuilding', () => {
  it('lets the platform find every session and every queued run again, while it serves', async () => {
    await askedSession();
    await margay.platform.get('agent-runner').stop();
    const session = await margay.sessionWith({});
    margay.script(() => answer('found'));
    await session.query('anybody there?');
    // Where a run stands in the queue is of this moment, and not restored.
    const stored = (key: string, value: unknown) => (key === 'queue_position' ? undefined : value);
    const list = async () =>
      JSON.parse(JSON.stringify((await margay.request('GET', '/api/sessions')).body, stored)) as unknown;
    // Rows follow their log in a moment.
    while (!JSON.stringify(await list()).includes(session.id)) await new Promise((resolve) => setTimeout(resolve, 50));
    const before = await list();
    for (const name of ['sessions', 'runs']) await rows(name).deleteMany({});
    expect(await list()).toEqual({ sessions: [] });

    expect(await operate('rebuild')).toMatchObject({ code: 0, out: expect.stringContaining('rows put right') });
    expect(await list()).toEqual(before);
    await margay.platform.restart('agent-runner');
    for await (const item of margay.client.session(session.id).stream())
      if (item.type === 'assistant') expect(item.payload.text).toBe('found');
    expect((await eventsOf(session.id)).map(({ type }) => type)).toContain('completion');
  });
});

import { sessionsPb } from '@margay/contracts';
import { ForkWriter, isHalfMade, verifyLog, type CommitDocument, type ForkPlan } from '@margay/log';
import { createCommand } from '@margay/testing';
import { ObjectId } from 'mongodb';
import { MongoBlobStore } from '../commits/mongo-blob-store';
import { MongoCommitStore } from '../commits/mongo-commit-store';
import { SessionRepository } from '../effects/session.repository';
import { ForkRepository, type ForkRow } from '../sessions/fork.repository';
import { TagRepository, type TagRow } from '../sessions/tag.repository';
import { ScriptedRunner } from '../spec/scripted-runner';
import { principalOf, SessionHarness } from '../spec/session-harness';
import { forkSweep, settleFork } from './fork-sweep';
import { blobSweep } from './blob-sweep';
import { tagSweep } from './tag-sweep';

jest.setTimeout(120_000);

// Tests move the clock of this process, which the service looks at all the time: it would refuse to serve.
jest.mock('../store/store-clock', () => ({
  ...jest.requireActual<typeof import('../store/store-clock')>('../store/store-clock'),
  checkClock: () => Promise.resolve(),
}));

const harness = new SessionHarness();
let store: MongoCommitStore;
let blobs: MongoBlobStore;
let sessions: SessionRepository;
let forks: ForkRepository;
let tags: TagRepository;
let runner: ScriptedRunner;

beforeAll(async () => {
  await harness.start();
  const db = await harness.db();
  blobs = new MongoBlobStore(db);
  store = new MongoCommitStore(db.collection('commits'), db.collection('sessions'), blobs);
  sessions = new SessionRepository(db.collection('sessions'));
  forks = new ForkRepository(db.collection('forks'));
  tags = new TagRepository(db.collection('tags'));
  runner = new ScriptedRunner(harness.runners, 'runner', harness.pool);
}, 600_000);
afterAll(async () => {
  runner.detach();
  await harness.stop();
});

const LONG = 'x'.repeat(120_000);

/** A session with one finished run, whose answer is too long for a commit's event. */
async function session(answer = 'the answer'): Promise<string> {
  const sessionId = await harness.createSession();
  await run(sessionId, 'question', answer);
  return sessionId;
}

async function run(sessionId: string, text: string, answer: string): Promise<{ kind: string; text?: unknown }[]> {
  // Who misses heartbeats gets no run.
  runner.heartbeat([]);
  await harness.accept(sessionId, text);
  const journal = await runner.openJournal(await runner.assignOf(sessionId));
  await journal.finish(answer);
  journal.close();
  return journal.records;
}

async function fork(sessionId: string, fields: Partial<sessionsPb.ForkSessionRequest> = {}, principal = harness.owner) {
  return harness.sessions.forkSession(sessionsPb.ForkSessionRequest.fromPartial({ sessionId, ...fields }), {
    principal,
  });
}

async function logOf(sessionId: string): Promise<CommitDocument[]> {
  const documents: CommitDocument[] = [];
  for await (const document of store.range(sessionId, 1)) documents.push(document);
  return documents;
}

const typesOf = async (sessionId: string) => (await harness.events(sessionId)).map(({ type }) => type);

/** The plan of a fork that somebody has begun, and the commits that he should write. */
async function begun(
  tag: string | null = null,
): Promise<{ plan: ForkPlan; row: ForkRow; documents: CommitDocument[] }> {
  const source = await session();
  const { c, ts, cuts } = (await logOf(source)).at(-1)?.head ?? { c: 0, ts: 0, cuts: [] };
  const plan: ForkPlan = {
    sessionId: source.split('').reverse().join(''),
    tenantId: 'default',
    owner: harness.owner.principal,
    tag,
    title: null,
    model: null,
    source: { sessionId: source, c, ts, cuts },
    forkedAtTs: null,
  };
  const row = await forks.begin(plan, { commitId: 'fork', bodyHash: 'hash' });
  const writer = new ForkWriter(plan);
  for (const document of await logOf(source)) writer.add(document);
  const last = (): CommitDocument => writer.close(Date.now() * 1_000, { commitId: 'fork', bodyHash: 'hash' });
  return { plan, row, documents: [writer.flush() as CommitDocument, last()] };
}

describe('a fork', () => {
  it('is a session of its own with the events of its source, and goes on with the same conversation', async () => {
    const source = await session(LONG);
    const { sessionId, forkedAt, replayed } = await fork(source, { model: 'other', tag: 'first fork' });
    expect([forkedAt, replayed]).toEqual(['', false]);
    const events = await harness.events(sessionId);
    const before = await harness.events(source);
    expect(events.slice(0, before.length)).toEqual(before);
    expect(events.slice(before.length)).toMatchObject([
      { type: 'session', payload: { event: 'created' } },
      { type: 'context', payload: { forked_from: source, model: 'other' } },
    ]);
    expect(verifyLog(sessionId, await logOf(sessionId))).toBeUndefined();
    expect(await sessions.find(sessionId)).toMatchObject({ hasRun: true, isRunning: false, title: 'question' });
    const records = await run(sessionId, 'and then?', 'done');
    expect(records.filter(({ kind }) => kind === 'user' || kind === 'end').map(({ text }) => text)).toEqual(['question', LONG, 'and then?']); // prettier-ignore
    const found = await harness.sessions.listSessions(
      sessionsPb.ListSessionsRequest.fromPartial({ tag: 'first fork' }),
      { principal: harness.owner },
    );
    expect(found.summariesJson.map((json) => (JSON.parse(json) as { session_id: string }).session_id)).toEqual([sessionId]); // prettier-ignore
  });

  it('ends at the event that was named', async () => {
    const source = await session();
    await run(source, 'second', 'second answer');
    const first = (await harness.events(source)).find(({ type }) => type === 'assistant');
    const { sessionId, forkedAt } = await fork(source, { fromTs: first?.ts ?? '' });
    expect(forkedAt).toBe(first?.ts);
    expect((await typesOf(sessionId)).slice(-4)).toEqual(['assistant', 'completion', 'session', 'context']);
    expect((await harness.events(sessionId)).at(-1)?.payload).toEqual({ forked_from: source, forked_at: forkedAt });
  });

  it('repeated with its key is the same one, whatever has become of the source; with another body it is refused', async () => {
    const source = await session();
    const first = await fork(source, { idempotencyKey: 'k', model: 'm' });
    await harness.sessions.terminateSession({ sessionId: source }, { principal: harness.owner });
    expect(await fork(source, { idempotencyKey: 'k', model: 'm' })).toEqual({ ...first, replayed: true });
    await expect(fork(source, { idempotencyKey: 'k' })).rejects.toMatchObject({ reason: 'idempotency_key_reused' });
  });

  it('sent twice at once with one key is made once', async () => {
    const source = await session();
    const made = await Promise.all(Array.from({ length: 5 }, () => fork(source, { idempotencyKey: 'twice' })));
    const [first] = made;
    expect(new Set(made.map(({ sessionId }) => sessionId)).size).toBe(1);
    expect((await typesOf(first?.sessionId ?? '')).filter((type) => type === 'session')).toHaveLength(2);
  });

  it('that was broken off is finished by a repeat, also where the source went on meanwhile', async () => {
    const source = await session();
    // What a replica leaves behind that dies after the first commit: it is made by one, and the rest taken away.
    const { sessionId } = await fork(source, { idempotencyKey: 'crash' });
    const whole = await logOf(sessionId);
    const last = whole.at(-1) as CommitDocument;
    const { c, ts, cuts } = (await logOf(source)).at(-1)?.head ?? { c: 0, ts: 0, cuts: [] };
    const [command] = last.commands;
    const plan: ForkPlan = { sessionId, tenantId: 'default', owner: harness.owner.principal, tag: null, title: 'question', model: null, source: { sessionId: source, c, ts, cuts }, forkedAtTs: null }; // prettier-ignore
    await forks.begin(plan, { commitId: command?.commitId ?? '', bodyHash: command?.bodyHash ?? '' });
    const db = await harness.db();
    await db.collection<{ _id: string }>('commits').deleteOne({ _id: last._id });
    await db.collection<{ _id: string }>('sessions').deleteOne({ _id: sessionId });
    await run(source, 'later', 'later answer');
    expect(await fork(source, { idempotencyKey: 'crash' })).toMatchObject({ sessionId, replayed: false });
    const again = await logOf(sessionId);
    expect(again.slice(0, -1)).toEqual(whole.slice(0, -1));
    expect(await typesOf(sessionId)).not.toContain('later');
    expect(verifyLog(sessionId, again)).toBeUndefined();
    expect(await sessions.find(sessionId)).toBeDefined();
    expect(await forks.find(sessionId)).toBeUndefined();
  });

  it('is refused of a session that runs, is over, or is another’s, and at a time when nothing was said', async () => {
    const running = await harness.createSession();
    await harness.accept(running, 'question');
    await expect(fork(running)).rejects.toMatchObject({ reason: 'session_running', message: 'Cannot fork a running session.' }); // prettier-ignore
    const over = await harness.createSession();
    await harness.sessions.terminateSession({ sessionId: over }, { principal: harness.owner });
    await expect(fork(over)).rejects.toMatchObject({ reason: 'session_terminated' });
    const source = await session();
    const eve = principalOf('other', 'user:eve', 'owner');
    await expect(fork(source, {}, eve)).rejects.toMatchObject({ reason: 'session_not_found' });
    const viewer = principalOf('default', harness.owner.principal, 'viewer');
    await expect(fork(source, {}, viewer)).rejects.toMatchObject({ reason: 'permission_denied' });
    for (const fromTs of ['2020-01-01T00:00:00Z', 'yesterday'])
      await expect(fork(source, { fromTs })).rejects.toMatchObject({ reason: 'event_not_found' });
    await expect(fork(source, { compact: true })).rejects.toMatchObject({ reason: 'compaction_unavailable' });
  });

  it('does not take the tag of another session', async () => {
    const tagged = await harness.createSession(harness.owner, { sessionTag: 'taken' });
    await expect(fork(await session(), { tag: 'taken' })).rejects.toMatchObject({ reason: 'tag_taken' });
    expect((await tags.find('default', 'taken'))?.sessionId).toBe(tagged);
  });
});

describe('the collector of forks', () => {
  const ports = () => ({
    store,
    sessions,
    forks,
    service: { complete: () => Promise.reject(new Error('nothing is to be completed')) },
  });
  const list = async () =>
    (await harness.sessions.listSessions(sessionsPb.ListSessionsRequest.fromPartial({}), { principal: harness.owner }))
      .summariesJson;

  it('shows none that is half made, and finds those that were begun an hour ago', async () => {
    const { plan, row, documents } = await begun();
    await store.insert(documents[0] as CommitDocument);
    expect(isHalfMade((await logOf(plan.sessionId)).at(-1)?.head as CommitDocument['head'])).toBe(true);
    expect((await list()).join()).not.toContain(plan.sessionId);
    const orphans = async (afterMs: number) => (await forks.orphans(Date.now() + afterMs, 50)).map(({ _id }) => _id);
    expect(await orphans(0)).not.toContain(row._id);
    expect(await orphans(3_600_001)).toContain(row._id);
  });

  it('takes the place of the row first, so that whoever comes late makes nothing visible, then removes the commits', async () => {
    const { plan, row, documents } = await begun();
    const [copy, last] = documents as [CommitDocument, CommitDocument];
    await store.insert(copy);
    await settleFork(ports(), row);
    expect(await sessions.find(plan.sessionId)).toMatchObject({ isDead: true });
    expect(await logOf(plan.sessionId)).toEqual([]);
    // To whoever knows its id it is no session, either.
    const verified = harness.sessions.verifySession({ sessionId: plan.sessionId }, { principal: harness.owner });
    await expect(verified).rejects.toMatchObject({ reason: 'session_not_found' });
    // A process that was stopped in the middle goes on.
    await store.insert(copy);
    await store.insert(last);
    await sessions.project(last.head);
    expect(await sessions.find(plan.sessionId)).toMatchObject({ isDead: true });
    const dead = (await forks.find(plan.sessionId)) as ForkRow;
    expect(dead).toMatchObject({ isDead: true });
    await settleFork(ports(), dead);
    expect(await logOf(plan.sessionId)).toEqual([]);
    expect(await forks.find(plan.sessionId)).toBeUndefined();
  });

  it('makes no session of one that was given up before its last commit came', async () => {
    const { plan, row, documents } = await begun();
    await sessions.bury(plan.sessionId, 'default');
    for (const document of documents) await store.insert(document);
    await settleFork(ports(), row);
    expect(await logOf(plan.sessionId)).toEqual([]);
    expect(await forks.find(plan.sessionId)).toMatchObject({ isDead: true });
  });

  it('makes a session of one whose log is whole', async () => {
    const { row, documents } = await begun();
    for (const document of documents) await store.insert(document);
    const completed: string[] = [];
    const service = { complete: async (last: CommitDocument) => (completed.push(last._id), last) };
    await settleFork({ ...ports(), service }, row);
    expect(completed).toEqual([documents.at(-1)?._id]);
  });

  it('is not held up by forks that can’t be settled: they are looked at again later', async () => {
    const { plan, documents } = await begun();
    for (const document of documents) await store.insert(document);
    const db = await harness.db();
    await db.collection<ForkRow>('forks').updateOne({ _id: plan.sessionId }, { $set: { dueAt: new Date(0) } });
    const service = { complete: () => Promise.reject(new Error('not now')) };
    await expect(forkSweep({ ...ports(), service }).sweep()).rejects.toThrow('not now');
    expect((await forks.orphans(Date.now(), 50)).map(({ _id }) => _id)).not.toContain(plan.sessionId);
    expect((await forks.orphans(Date.now() + 600_001, 50)).map(({ _id }) => _id)).toContain(plan.sessionId);
  });

  it('leaves a session alone that became visible just before', async () => {
    const { plan, row, documents } = await begun();
    await store.insert(documents[0] as CommitDocument);
    await sessions.project((documents[1] as CommitDocument).head);
    await settleFork(ports(), row);
    expect(await logOf(plan.sessionId)).toHaveLength(1);
    expect((await sessions.find(plan.sessionId))?.isDead).toBeUndefined();
  });
});

describe('the sweep over tags', () => {
  const later = () => jest.spyOn(Date, 'now').mockReturnValue(Date.now() + 61_000);
  const logPort = {
    confirmedTip: async (sessionId: string) => ({
      head: (await logOf(sessionId)).at(-1)?.head ?? { c: 0, createdTs: 0 },
    }),
    submit: async (_: string, command: { commitId: string }) => {
      submitted.push(command.commitId);
      return { ok: true };
    },
  };
  const submitted: string[] = [];
  const sweep = async (): Promise<number> => {
    const clock = later();
    try {
      return await tagSweep({ log: logPort as never, tags, forks }).sweep();
    } finally {
      clock.mockRestore();
    }
  };
  const rowOf = async (tag: string) =>
    (await harness.db()).collection<TagRow>('tags').findOne({ _id: `default/${tag}` });

  it('writes commit 1 of a session whose creator died, by the command that the tag holds', async () => {
    await sweep();
    submitted.length = 0;
    await tags.reserve('default', 'half', 'd'.repeat(32), createCommand({ commitId: 'create half', tag: 'half' }));
    expect(await sweep()).toBe(1);
    expect(submitted).toEqual(['create half']);
    expect((await rowOf('half'))?.checkAt).toBeUndefined();
  });

  it('is not held up by a tag that can’t be repaired', async () => {
    await tags.reserve('default', 'stuck', '5'.repeat(32), createCommand({ commitId: 'create stuck', tag: 'stuck' }));
    const stuck = jest.spyOn(logPort, 'submit').mockRejectedValueOnce(new Error('not now'));
    await expect(sweep()).rejects.toThrow('not now');
    stuck.mockRestore();
    // A minute later than the sweep, whose clock was a minute ahead.
    expect((await rowOf('stuck'))?.checkAt?.getTime()).toBeGreaterThan(Date.now() + 61_000);
    await (await harness.db()).collection<TagRow>('tags').deleteOne({ _id: 'default/stuck' });
  });

  it('finds nothing to do where the session exists', async () => {
    await harness.createSession(harness.owner, { sessionTag: 'whole' });
    expect((await rowOf('whole'))?.checkAt).toBeDefined();
    submitted.length = 0;
    expect(await sweep()).toBe(0);
    expect(submitted).toEqual([]);
    expect((await rowOf('whole'))?.checkAt).toBeUndefined();
  });

  it('hides the tag of a fork while it is being made, and frees it when the fork is given up', async () => {
    const { plan } = await begun('pending');
    await tags.reserveForFork('default', 'pending', plan.sessionId);
    expect(await tags.find('default', 'pending')).toBeUndefined();
    await expect(harness.createSession(harness.owner, { sessionTag: 'pending' })).rejects.toMatchObject({ reason: 'tag_busy' }); // prettier-ignore
    await sweep();
    expect(await rowOf('pending')).not.toBeNull();
    await forks.die(plan.sessionId, Date.now());
    const clock = jest.spyOn(Date, 'now').mockReturnValue(Date.now() + 200_000);
    await tagSweep({ log: logPort as never, tags, forks }).sweep();
    clock.mockRestore();
    expect(await rowOf('pending')).toBeNull();
  });
});

describe('the collector of blobs', () => {
  const DAY_MS = 24 * 3_600_000;
  const collect = (afterMs: number) =>
    blobs.collect((tenantId, id) => store.refersTo(tenantId, id), 1_000, Date.now() + afterMs);
  const isThere = async (id: string): Promise<boolean> =>
    blobs.size('default', id).then(
      () => true,
      () => false,
    );

  it('removes what no commit refers to, a day after it was put', async () => {
    const id = await blobs.put('default', Buffer.from('never used'));
    await collect(DAY_MS - 60_000);
    expect(await isThere(id)).toBe(true);
    await collect(DAY_MS + 60_000);
    expect(await isThere(id)).toBe(false);
    expect(await (await harness.db()).collection('fs.chunks').countDocuments({ data: Buffer.from('never used') })).toBe(
      0,
    );
  });

  it('keeps what a session refers to, and what only its fork does', async () => {
    const source = await session(`${LONG} kept`);
    const { sessionId } = await fork(source);
    const event = (await harness.events(sessionId)).find(({ type }) => type === 'assistant');
    const { id } = event?.payload['text_blob'] as { id: string };
    await collect(2 * DAY_MS);
    expect(await isThere(id)).toBe(true);
    await (await harness.db()).collection('commits').deleteMany({ sessionId: source });
    await collect(20 * DAY_MS);
    expect(await isThere(id)).toBe(true);
    await (await harness.db()).collection('commits').deleteMany({ sessionId });
    await collect(40 * DAY_MS);
    expect(await isThere(id)).toBe(false);
  });

  it('stays away from what is put again, or referred to, between its look and its removal', async () => {
    const id = await blobs.put('default', Buffer.from('put again'));
    const other = new MongoBlobStore(await harness.db());
    const putMeanwhile = async (): Promise<boolean> => {
      expect(await other.put('default', Buffer.from('put again'))).toBe(id);
      return false;
    };
    await blobs.collect(putMeanwhile, 1_000, Date.now() + 2 * DAY_MS);
    expect(await isThere(id)).toBe(true);
    const keepMeanwhile = async (): Promise<boolean> => {
      expect(await new MongoBlobStore(await harness.db()).keep('default', [id])).toEqual([]);
      return false;
    };
    await blobs.collect(keepMeanwhile, 1_000, Date.now() + 2 * DAY_MS);
    expect(await isThere(id)).toBe(true);
  });

  it('is believed by a process that touched the blob before its machine slept', async () => {
    const id = await blobs.put('default', Buffer.from('put before the night'));
    await collect(2 * DAY_MS);
    // The monotonic clock stood still meanwhile.
    const clock = jest.spyOn(Date, 'now').mockReturnValue(Date.now() + 2 * DAY_MS);
    expect(await blobs.keep('default', [id])).toEqual([id]);
    expect(await blobs.put('default', Buffer.from('put before the night'))).toBe(id);
    clock.mockRestore();
    expect(await isThere(id)).toBe(true);
  });

  it('finishes a removal that was broken off; the bytes can be put anew meanwhile', async () => {
    const id = await blobs.put('default', Buffer.from('dying'));
    const files = (await harness.db()).collection('fs.files');
    await files.updateMany({ filename: `default/${id}` }, { $set: { 'metadata.isDead': true } });
    expect(await isThere(id)).toBe(false);
    const other = new MongoBlobStore(await harness.db());
    await other.put('default', Buffer.from('dying'));
    expect((await other.get('default', id)).toString()).toBe('dying');
    const [dead] = await files.find({ filename: `default/${id}`, 'metadata.isDead': true }).toArray();
    await blobs.collect(() => Promise.resolve(true), 1_000, Date.now() + 2 * DAY_MS);
    expect(await files.findOne({ _id: dead?._id })).toBeNull();
    expect((await other.get('default', id)).toString()).toBe('dying');
  });

  it('lets no commit in that refers to what it has removed', async () => {
    const { documents } = await begun();
    const last = documents[1] as CommitDocument;
    const record = JSON.stringify({ kind: 'note', text: { $blob: 'f'.repeat(64) } });
    await expect(store.insert({ ...last, records: [record] })).rejects.toMatchObject({ reason: 'blob_lost' });
    await store.insert(last);
    expect(await store.insert({ ...last, records: [record] })).toBe('exists');
  });

  it('removes what is left of uploads that broke off, and nothing of whole ones', async () => {
    const chunks = (await harness.db()).collection('fs.chunks');
    const whole = await blobs.put('default', Buffer.from('whole'));
    const broken = new ObjectId();
    // The first piece may be missing, too.
    await chunks.insertMany([1, 2].map((n) => ({ files_id: broken, n, data: Buffer.from('x') })));
    // Two at a time, so that it takes several rounds.
    const rounds = async (afterMs: number): Promise<number> => {
      let removed = 0;
      for (let round = 0; round < 20; round++) removed += await blobs.collectBroken(2, Date.now() + afterMs);
      return removed;
    };
    expect(await rounds(0)).toBe(0);
    expect(await rounds(DAY_MS + 60_000)).toBe(1);
    expect(await chunks.countDocuments({ files_id: broken })).toBe(0);
    expect((await blobs.get('default', whole)).toString()).toBe('whole');
  });

  it('is a sweep with a lease of its own that begins once the store has answered for a while', () => {
    expect(blobSweep({ blobs, users: [store] })).toMatchObject({ name: 'blobs', settleMs: 600_000 });
  });
});

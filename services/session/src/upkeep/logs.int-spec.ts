import { acceptCommand, createCommand, hashed, messageCommand } from '@margay/testing';
import { emptyHead, fold, tipOf, type Command, type CommitDocument, type Tip } from '@margay/log';
import { createLogger } from '@margay/platform';
import type { StoredCommit } from '../commits/commit.mapper';
import { MongoBlobStore } from '../commits/mongo-blob-store';
import { MongoCommitStore } from '../commits/mongo-commit-store';
import { RunRepository, rowOfRun, type RunRow } from '../dispatch/run.repository';
import { SessionRepository, type SessionRow } from '../effects/session.repository';
import type { QuestionRow } from '../questions/question.repository';
import { RealStore } from '../spec/real-store';
import { OperatorStore } from './operator-store';
import { projectionsIn } from './projections';
import { logSweep, queueSweep } from './queue-sweeps';

const real = new RealStore();
let store: MongoCommitStore;
let sessions: SessionRepository;
let runs: RunRepository;
let operator: OperatorStore;
let count = 0;
let lost: unknown[];

beforeAll(async () => {
  await real.start();
  store = new MongoCommitStore(real.db.collection('commits'), real.db.collection('sessions'));
  sessions = new SessionRepository(real.db.collection('sessions'));
  runs = new RunRepository(real.db.collection('runs'));
  for (const owner of [store, sessions, runs]) await owner.createIndexes();
  const environment = { MARGAY_MONGODB_URL: real.url, MARGAY_MONGODB_DATABASE: real.db.databaseName };
  operator = await OperatorStore.open(environment, createLogger({ service: 'spec', level: 'off' }));
}, 300_000);
afterAll(async () => {
  await operator.close();
  await real.stop();
});
beforeEach(async () => {
  lost = [];
  for (const name of ['commits', 'sessions', 'runs', 'questions']) await real.db.collection(name).deleteMany({});
});

const RAW = () => real.db.collection<StoredCommit>('commits');

/** A stored session; its rows are written as effects would, unless they are to be missing. */
async function stored(batches: Command[][], { withRows = true, tenantId = 'tenant' } = {}): Promise<CommitDocument[]> {
  count += 1;
  const sessionId = `${count}`.padStart(32, 'a');
  let tip: Tip = { head: emptyHead(sessionId), hash: '' };
  const documents: CommitDocument[] = [];
  for (const commands of [[createCommand({ tenantId })], ...batches]) {
    const { document } = fold(tip, commands.map(hashed), (Date.now() - 120_000) * 1_000);
    if (!document) throw new Error('document expected');
    expect(await store.insert(document)).toBe('inserted');
    tip = tipOf(document);
    documents.push(document);
  }
  if (!withRows) return documents;
  await sessions.project(tip.head);
  if (tip.head.run) await runs.project(rowOfRun(tip.head, tip.head.run.id, tip.head.epoch));
  return documents;
}

const asked = [
  [acceptCommand('question')],
  [messageCommand('one')],
  [messageCommand('two')],
  [messageCommand('three')],
];

describe('verification of what is stored', () => {
  const verify = async ([first]: CommitDocument[]) => operator.verify(first?.sessionId ?? '');

  it('says that a log is in order, with its length and its last hash', async () => {
    const log = await stored(asked);
    expect(await verify(log)).toEqual({ sessionId: log[0]?.sessionId, commits: 5, headHash: log.at(-1)?.hash });
  });

  it('finds one changed byte in any field of the stored form', async () => {
    const log = await stored(asked);
    const id = log[2]?._id ?? '';
    const whole = (await RAW().findOne({ _id: id })) as StoredCommit;
    const flip = (text: string): string => `${text.slice(0, -3)}#${text.slice(-2)}`;
    const changes: Partial<Record<keyof StoredCommit, unknown>>[] = [
      { events: whole.events?.map((event) => flip(String(event))) },
      { records: whole.records?.map(flip) },
      { head: flip(whole.head) },
      { answers: flip(whole.answers ?? '') },
      { commitIds: ['x'] },
      { tenantId: 'y' },
      { ts0: whole.ts0 + 1 },
      { blobs: ['f'.repeat(64)] },
      { hash: Buffer.alloc(32) },
      { commands: [Buffer.alloc(32)] },
      { effects: [{ kind: 'session' }] },
      { records: [] },
    ];
    for (const change of changes) {
      await RAW().updateOne({ _id: id }, { $set: change as Partial<StoredCommit> });
      expect([Object.keys(change), (await verify(log)).fault?.c]).toEqual([Object.keys(change), 3]);
      await RAW().replaceOne({ _id: id }, whole);
    }
    expect((await verify(log)).fault).toBeUndefined();
  });

  it('finds a commit that was removed from the middle, the start and the end', async () => {
    for (const c of [3, 1, 5]) {
      const log = await stored(asked);
      await RAW().deleteOne({ _id: log[c - 1]?._id ?? '' });
      expect((await verify(log)).fault).toMatchObject({ c, problem: expect.stringMatching(/missing|ends before/) });
    }
  });

  it('finds two commits whose contents changed places', async () => {
    const log = await stored(asked);
    const [third, fourth] = await RAW().find({ sessionId: log[0]?.sessionId }).sort({ _id: 1 }).skip(2).toArray();
    if (!third || !fourth) throw new Error('commits expected');
    const { _id: thirdId, ...ofThird } = third;
    const { _id: fourthId, ...ofFourth } = fourth;
    await RAW().deleteMany({ _id: { $in: [thirdId, fourthId] } });
    await RAW().insertMany([
      { _id: thirdId, ...ofFourth },
      { _id: fourthId, ...ofThird },
    ]);
    expect((await verify(log)).fault?.c).toBe(3);
  });

  it('finds nothing wrong with a log that is being written meanwhile', async () => {
    const log = await stored(asked);
    let tip = tipOf(log.at(-1) as CommitDocument);
    let isWriting = true;
    const writing = (async () => {
      for (let i = 0; i < 120; i++) {
        const { document } = fold(tip, [hashed(messageCommand(`more ${i}`))], Date.now() * 1_000);
        await store.insert(document as CommitDocument);
        tip = tipOf(document as CommitDocument);
      }
      isWriting = false;
    })();
    const lengths: number[] = [];
    while (isWriting) {
      const { commits, fault } = await verify(log);
      expect(fault).toBeUndefined();
      lengths.push(commits);
    }
    await writing;
    expect(lengths).toEqual(lengths.toSorted((a, b) => a - b));
    expect((await verify(log)).commits).toBe(125);
  });

  it('walks through all sessions, or those of one tenant', async () => {
    const good = await stored(asked);
    const bad = await stored(asked, { tenantId: 'other' });
    await RAW().deleteOne({ _id: bad[1]?._id ?? '' });
    const found = async (tenantId?: string) => {
      const all: [string, number | undefined][] = [];
      for await (const { sessionId, fault } of operator.verifyAll(tenantId)) all.push([sessionId, fault?.c]);
      return all;
    };
    const [ofGood, ofBad] = [
      [good[0]?.sessionId, undefined],
      [bad[0]?.sessionId, 2],
    ];
    expect(await found()).toEqual([ofGood, ofBad]);
    expect(await found('other')).toEqual([ofBad]);
  });

  it('finds sessions of which nothing but the row is left', async () => {
    const gone = await stored(asked, { tenantId: 'other' });
    await RAW().deleteMany({});
    const found: [string, unknown][] = [];
    for await (const { sessionId, fault } of operator.verifyAll('other')) found.push([sessionId, fault?.c]);
    for await (const { sessionId } of operator.verifyAll('third')) found.push([sessionId, 'foreign']);
    expect(found).toEqual([[gone[0]?.sessionId, 1]]);
  });

  it('finds blobs that are missing, changed, cut short, or named by no commit', async () => {
    const blobs = new MongoBlobStore(real.db);
    const id = await blobs.put('tenant', Buffer.from('a text that is too long'));
    const runId = `${`${count + 1}`.padStart(32, 'a')}:r1`;
    const log = await stored([
      [acceptCommand('q')],
      [{ kind: 'claim', commitId: 'claim', runId, epoch: 1, owner: 'r' }],
      [{ kind: 'step', commitId: 's', runId, epoch: 2, events: [], records: [{ kind: 'note', text: { $blob: id } }] }],
    ]);
    const problem = async () => (await verify(log)).fault?.problem ?? 'none';
    expect(await problem()).toBe('none');
    const commit = log[3]?._id ?? '';
    await RAW().updateOne({ _id: commit }, { $unset: { blobs: 1 } });
    expect(await problem()).toMatch(/without naming it/);
    await RAW().updateOne({ _id: commit }, { $set: { blobs: [id] } });
    const [files, chunks] = [real.db.collection('fs.files'), real.db.collection('fs.chunks')];
    const chunk = await chunks.findOne({ files_id: (await files.findOne({ filename: `tenant/${id}` }))?._id });
    await chunks.updateOne({ _id: chunk?._id }, { $set: { data: Buffer.from('b text that is too long') } });
    expect(await problem()).toMatch(/was changed/);
    await chunks.updateOne({ _id: chunk?._id }, { $set: { data: Buffer.from('a text') } });
    expect(await problem()).toMatch(/is not whole/);
    await chunks.deleteOne({ _id: chunk?._id });
    expect(await problem()).toMatch(/is not whole|was changed/);
    await files.deleteMany({});
    expect(await problem()).toMatch(/is missing/);
  });

  it('knows no session that has never been', async () => {
    await expect(operator.verify('f'.repeat(32))).rejects.toMatchObject({ reason: 'session_not_found' });
  });
});

describe('rebuilding', () => {
  const rowsOf = async <T extends { _id: string }>(name: string): Promise<T[]> =>
    (await real.db.collection<T>(name).find({}).sort({ _id: 1 }).toArray()) as T[];
  const restore = () => operator.rebuildAll(() => undefined);

  it('restores all rows from the logs when they are gone', async () => {
    await stored(asked);
    await stored([[acceptCommand('q')], [{ kind: 'cancel', commitId: 'c' }]]);
    await stored([]);
    const before = [await rowsOf<SessionRow>('sessions'), await rowsOf<RunRow>('runs')];
    for (const name of ['sessions', 'runs']) await real.db.collection(name).deleteMany({});
    expect(await restore()).toEqual({ sessions: 3, rows: 4, unreadable: [] });
    expect([await rowsOf<SessionRow>('sessions'), await rowsOf<RunRow>('runs')]).toEqual(before);
    expect(await restore()).toEqual({ sessions: 3, rows: 0, unreadable: [] });
  });

  it('corrects rows that say what no log says, and removes those without a log', async () => {
    const log = await stored(asked);
    const sessionId = log[0]?.sessionId ?? '';
    const [rightSession] = await rowsOf<SessionRow>('sessions');
    const [rightRun] = await rowsOf<RunRow>('runs');
    if (!rightSession || !rightRun) throw new Error('rows expected');
    await real.db.collection<SessionRow>('sessions').replaceOne({ _id: sessionId }, { ...rightSession, c: 99, owner: 'mallory' }); // prettier-ignore
    await real.db.collection<SessionRow>('sessions').insertOne({ ...rightSession, _id: 'e'.repeat(32) });
    await real.db
      .collection<RunRow>('runs')
      .replaceOne({ _id: rightRun._id }, { ...rightRun, state: 'done', epoch: 9 });
    await real.db.collection<RunRow>('runs').insertOne({ ...rightRun, _id: `${sessionId}:r7`, state: 'running' });
    expect(await restore()).toEqual({ sessions: 1, rows: 4, unreadable: [] });
    expect(await rowsOf('sessions')).toEqual([rightSession]);
    expect(await rowsOf('runs')).toEqual([
      rightRun,
      expect.objectContaining({ _id: `${sessionId}:r7`, state: 'done' }),
    ]);
  });

  it('leaves a newer row alone that was projected after the log was read', async () => {
    const log = await stored(asked);
    const [row] = await rowsOf<SessionRow>('sessions');
    const head = log.at(-1)?.head;
    if (!row || !head) throw new Error('row expected');
    await real.db.collection<SessionRow>('sessions').updateOne({ _id: row._id }, { $set: { c: 2, title: 'old' } });
    const [projection] = projectionsIn(real.db, (ahead) => lost.push(ahead));
    const wrong = await projection?.restore(row._id, async () => {
      await sessions.project({ ...head, c: 9, title: 'newer' });
      return head;
    });
    expect(wrong).toBe(0);
    expect(await sessions.find(row._id)).toMatchObject({ c: 9, title: 'newer' });
  });

  it('beside runs that come, are claimed and end takes no row back, and leaves what the log says', async () => {
    const [first] = await stored([]);
    let tip = tipOf(first as CommitDocument);
    const { sessionId } = tip.head;
    let isGoingOn = true;
    const commit = async (command: Command): Promise<void> => {
      const { document } = fold(tip, [hashed(command)], Date.now() * 1_000);
      if (!document) throw new Error('document expected');
      await store.insert(document);
      tip = tipOf(document);
      await sessions.project(tip.head);
      for (const effect of document.effects)
        if (effect.kind === 'run') await runs.project(rowOfRun(tip.head, effect.runId, effect.epoch));
    };
    const going = (async () => {
      for (let no = 1; no <= 25; no++) {
        const runId = `${sessionId}:r${no}`;
        await commit({ ...acceptCommand('q'), commitId: `accept ${no}` });
        await commit({ kind: 'claim', commitId: `claim ${no}`, runId, epoch: tip.head.epoch, owner: 'r' });
        await commit({ kind: 'cancel', commitId: `cancel ${no}` });
      }
      isGoingOn = false;
    })();
    let seenC = 0;
    while (isGoingOn) {
      await Promise.all([restore(), restore()]);
      const { c } = (await sessions.find(sessionId)) ?? { c: 0 };
      expect(c).toBeGreaterThanOrEqual(seenC);
      seenC = c;
    }
    await going;
    expect(await sessions.find(sessionId)).toMatchObject({ c: 76, isRunning: false });
    const states = (await rowsOf<RunRow>('runs')).map(({ state }) => state);
    expect(states).toEqual(Array.from({ length: 25 }, () => 'done'));
    expect(await restore()).toMatchObject({ rows: 0 });
  });

  it('is not held up by a log that can’t be read, and names it', async () => {
    const [bad, good] = [await stored(asked), await stored(asked)];
    await real.db.collection('commits').updateOne({ _id: bad.at(-1)?._id as never }, { $set: { v: 9 } });
    await real.db.collection('sessions').deleteMany({});
    expect(await restore()).toMatchObject({
      sessions: 2,
      rows: 1,
      unreadable: [{ sessionId: bad[0]?.sessionId, problem: expect.stringContaining('upgrade it') }],
    });
    expect(await sessions.find(good[0]?.sessionId ?? '')).toMatchObject({ c: 5 });
  });

  it('revives no fork that was given up, also where its log was finished behind that', async () => {
    const [first] = await stored(asked, { withRows: false });
    const sessionId = first?.sessionId ?? '';
    await sessions.bury(sessionId, 'tenant');
    await restore();
    expect(await sessions.find(sessionId)).toMatchObject({ isDead: true });
  });

  it('restores where questions lie', async () => {
    const runId = `${`${count + 1}`.padStart(32, 'a')}:r1`;
    const payload = { call_id: 'call', call_token: 't', questions: [], timeout_seconds: null, notes_placeholder: null };
    await stored([
      [acceptCommand('q')],
      [{ kind: 'claim', commitId: 'claim', runId, epoch: 1, owner: 'r' }],
      [
        {
          kind: 'step',
          commitId: 'ask',
          runId,
          epoch: 2,
          events: [{ type: 'user_question', payload }],
          records: [],
          questions: [{ callId: 'call', timeoutSeconds: null }],
        },
      ],
    ]);
    await restore();
    expect(await rowsOf<QuestionRow>('questions')).toMatchObject([{ _id: 'call' }]);
  });
});

describe('sweeps over queue and logs', () => {
  const ports = () => ({
    store,
    projections: projectionsIn(real.db, (ahead) => lost.push(ahead)),
    sessions,
    runs: real.db.collection<RunRow>('runs'),
  });

  it('put a run into the queue whose row is gone, and end a row whose run is over', async () => {
    const queued = await stored(asked);
    const over = await stored([[acceptCommand('q')], [{ kind: 'cancel', commitId: 'c' }]]);
    const [right] = await real.db.collection<RunRow>('runs').find({}).toArray();
    if (!right) throw new Error('row expected');
    await real.db.collection('runs').deleteMany({});
    const sessionId = over[0]?.sessionId ?? '';
    await real.db.collection<RunRow>('runs').insertOne({ ...right, _id: `${sessionId}:r1`, sessionId, c: 2 });
    const { sweep } = queueSweep(ports());
    expect(await sweep()).toBe(2);
    expect(await real.db.collection<RunRow>('runs').find({}).sort({ _id: 1 }).toArray()).toMatchObject([
      { sessionId: queued[0]?.sessionId, state: 'queued' },
      { sessionId, state: 'done' },
    ]);
    expect(await sweep()).toBe(0);
  });

  it('remove rows of runs that ended a day ago', async () => {
    const [log] = [await stored([[acceptCommand('q')], [{ kind: 'cancel', commitId: 'c' }]])];
    const head = log.at(-1)?.head;
    if (!head) throw new Error('head expected');
    await runs.project(rowOfRun(head, `${head.sessionId}:r1`, 3));
    const { sweep } = queueSweep(ports());
    await sweep();
    expect(await real.db.collection('runs').countDocuments({ sessionId: head.sessionId })).toBe(1);
    await real.db.collection('runs').updateMany({}, { $set: { changedAtMs: Date.now() - 25 * 3_600_000 } });
    await sweep();
    expect(await real.db.collection('runs').countDocuments({ sessionId: head.sessionId })).toBe(0);
  });

  it('tell of a row that is ahead of its log, before they put it right: commits were lost', async () => {
    const log = await stored(asked);
    const sessionId = log[0]?.sessionId ?? '';
    const { sweep } = logSweep({ ...ports(), onHalfMade: async () => undefined });
    expect([await sweep(), lost]).toEqual([0, []]);
    await RAW().deleteOne({ _id: log[4]?._id ?? '' });
    expect(await sweep()).toBeGreaterThan(0);
    expect(lost).toContainEqual({ sessionId, row: sessionId, rowC: 5, logC: 4 });
    lost = [];
    expect([await sweep(), lost]).toEqual([0, []]);
  });

  it('find a session that no row points at, round after round', async () => {
    const log = await stored(asked, { withRows: false });
    const { sweep } = logSweep({ ...ports(), onHalfMade: () => Promise.reject(new Error('none is half made')) });
    expect(await sweep()).toBe(2);
    expect(await sweep()).toBe(0);
    expect(await sessions.find(log[0]?.sessionId ?? '')).toMatchObject({ c: 5, isRunning: true });
    await real.db.collection('sessions').deleteMany({});
    expect(await sweep()).toBe(1);
  });
});

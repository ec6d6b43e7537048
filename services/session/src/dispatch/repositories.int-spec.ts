import { RealStore, times } from '../spec/real-store';
import { RunRepository, type RunRow } from './run.repository';
import { ReplicaRepository } from './replica.repository';
import { RunnerRepository } from './runner.repository';

const real = new RealStore();
let runs: RunRepository;
let runners: RunnerRepository;

beforeAll(async () => {
  await real.start();
  runs = new RunRepository(real.db.collection('runs'));
  runners = new RunnerRepository(real.db.collection('runners'), 'replica');
  await runs.createIndexes();
}, 300_000);
afterAll(() => real.stop());
afterEach(() => Promise.all(['runs', 'runners', 'instances'].map((name) => real.db.collection(name).deleteMany({}))));

function row(fields: Partial<RunRow> & { _id: string }): RunRow {
  const ids = { tenantId: 't', sessionId: 's', principal: 'user:ada', pool: 'p' };
  return { ...ids, c: 1, state: 'queued', epoch: 1, owner: null, queuedAtMs: 0, changedAtMs: 0, dueAtMs: null, isIsolated: false, ...fields }; // prettier-ignore
}

describe('the run queue', () => {
  it('shows the oldest first, of its pool only', async () => {
    await runs.project(row({ _id: 'b', queuedAtMs: 2 }));
    await runs.project(row({ _id: 'a', queuedAtMs: 1 }));
    await runs.project(row({ _id: 'x', pool: 'other' }));
    await runs.project(row({ _id: 'y', state: 'running', owner: 'o' }));
    expect((await runs.queued('p', 10)).map(({ _id }) => _id)).toEqual(['a', 'b']);
  });

  it('shows those who stand behind somebody with more runs than are looked at', async () => {
    const many = times(30, (i) => row({ _id: `ada${i}`, queuedAtMs: i }));
    const others = [
      row({ _id: 'bob', principal: 'user:bob', queuedAtMs: 100 }),
      row({ _id: 'eve', principal: 'user:eve', tenantId: 'u', queuedAtMs: 101 }),
    ];
    await real.db.collection<RunRow>('runs').insertMany([...many, ...others]);
    const found = (await runs.queued('p', 10)).map(({ _id }) => _id);
    expect(found.slice(0, 10)).toEqual(times(10, (i) => `ada${i}`));
    expect(found.slice(10)).toEqual(['bob', 'eve']);
  });

  it('shows principals of one name in other tenants, and further ones of the same tenant, behind a full page', async () => {
    const many = times(30, (i) => row({ _id: `ada${i}`, queuedAtMs: i }));
    const others = [
      row({ _id: 'same', tenantId: 'u', queuedAtMs: 100 }),
      row({ _id: 'eve', principal: 'user:eve', queuedAtMs: 101 }),
    ];
    await real.db.collection<RunRow>('runs').insertMany([...many, ...others]);
    expect((await runs.queued('p', 10)).map(({ _id }) => _id).slice(10)).toEqual(['same', 'eve']);
  });

  it('tells how many stand before a run, and which have waited for long', async () => {
    await real.db
      .collection<RunRow>('runs')
      .insertMany(times(5, (i) => row({ _id: `r${i}`, queuedAtMs: i, changedAtMs: 10 * i })));
    expect(await runs.ahead('p', 3)).toBe(3);
    expect((await runs.waitingSince('p', 20, 2)).map(({ _id }) => _id)).toEqual(['r0', 'r1']);
  });

  it('counts what runs per principal, what is wanted, and who owns', async () => {
    const running = { state: 'running' as const, owner: 'o1' };
    await runs.project(row({ _id: 'a', ...running }));
    await runs.project(row({ _id: 'b', ...running }));
    await runs.project(row({ _id: 'c', ...running, owner: 'o2', tenantId: 'u' }));
    await runs.project(row({ _id: 'd', queuedAtMs: Date.now() - 90_000 }));
    // A run that waits for somebody holds no slot: it counts as nothing.
    await runs.project(row({ _id: 'e', state: 'waiting' }));
    const counted = await runs.running();
    expect(counted.toSorted((a, b) => a.runs - b.runs)).toEqual([
      { tenantId: 'u', principal: 'user:ada', runs: 1 },
      { tenantId: 't', principal: 'user:ada', runs: 2 },
    ]);
    expect(await runs.demand('p')).toEqual({ queued: 1, running: 3, oldestQueuedSeconds: 90 });
    expect((await runs.owners()).toSorted()).toEqual(['o1', 'o2']);
    expect((await runs.runningOf('o1')).map(({ _id }) => _id).toSorted()).toEqual(['a', 'b']);
  });
});

describe('the row of a runner', () => {
  const attachment = (generation: number) => ({ instance: 'r', pool: 'p', slots: 7, generation });

  it('is not removed by who took its runs over, when it has attached again meanwhile', async () => {
    await runners.attach('r', 'p', 7);
    const seen = await runners.find('r');
    if (!seen) throw new Error('row expected');
    const generation = await runners.attach('r', 'p', 7);
    await runners.remove(seen);
    expect(await runners.find('r')).toMatchObject({ generation, isLost: false });
  });

  it('comes back with the next beat of a runner that was given up although it lives', async () => {
    const generation = await runners.attach('r', 'p', 7);
    const seen = await runners.find('r');
    if (!seen) throw new Error('row expected');
    await runners.remove(seen);
    await runners.beat(attachment(generation));
    expect(await runners.find('r')).toMatchObject({
      generation,
      isLost: false,
      pool: 'p',
      tenantId: '_platform',
      replica: 'replica',
      slots: 7,
    });
    expect(await runners.slots('p')).toBe(7);
    await runners.markLost('r', generation);
    expect(await runners.slots('p')).toBe(0);
  });

  it('is left alone by beats and marks of an older attachment', async () => {
    const older = await runners.attach('r', 'p', 7);
    const newer = await runners.attach('r', 'p', 7);
    const before = await runners.find('r');
    await runners.beat(attachment(older));
    expect(await runners.markLost('r', older)).toBe(false);
    expect(await runners.find('r')).toEqual(before);
    expect(await runners.markLost('r', newer)).toBe(true);
  });

  it('is left alone by an attachment that ended before the runner was given up and came back', async () => {
    const older = await runners.attach('r', 'p', 7);
    const seen = await runners.find('r');
    if (!seen) throw new Error('row expected');
    await runners.remove(seen);
    await runners.attach('r', 'p', 7);
    expect(await runners.markLost('r', older)).toBe(false);
    await runners.remove(seen);
    expect(await runners.find('r')).toMatchObject({ isLost: false });
  });

  it('counts attachments, also two at once', async () => {
    const generations = await Promise.all(times(10, () => runners.attach('r', 'p', 7)));
    expect(new Set(generations).size).toBe(10);
  });
});

it('a session replica is listed from its first beat until it leaves', async () => {
  const [one, other] = ['one', 'other'].map((id) => new ReplicaRepository(real.db.collection('instances'), id));
  await one?.beat();
  await one?.beat();
  await other?.beat();
  expect((await one?.list())?.map(({ _id, beat }) => [_id, beat]).toSorted()).toEqual([
    ['one', 2],
    ['other', 1],
  ]);
  await one?.leave();
  expect((await other?.list())?.map(({ _id }) => _id)).toEqual(['other']);
});

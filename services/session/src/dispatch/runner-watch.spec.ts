import { emptyHead, type Command, type Head } from '@margay/log';
import { createLogger } from '@margay/platform';
import type { RunRow } from './run.repository';
import type { RunnerRow } from './runner.repository';
import { RunnerWatch, type RunnerWatchOptions } from './runner-watch';

const logger = createLogger({ service: 'spec', level: 'off' });

let runners: Map<string, RunnerRow>;
/** Beats of session replicas. */
let replicas: Map<string, number>;
let runs: RunRow[];
let taken: string[];
/** Epochs that takeovers ended. */
let endedEpochs: number[];
/** Ends of logs. */
let heads: Map<string, Head>;
let isAway: boolean;
let isReplayed: boolean;
let counted: string[];
let watch: RunnerWatch;

function runner(id: string): RunnerRow {
  return { _id: id, tenantId: '_platform', pool: 'p', beat: 1, generation: 1, isLost: false, seenAt: new Date(), replica: 'me' }; // prettier-ignore
}

function run(id: string, owner: string, fields: Partial<RunRow> = {}): RunRow {
  const ids = { _id: id, tenantId: 't', sessionId: id, principal: 'u', pool: 'p' };
  return { ...ids, c: 3, state: 'running', epoch: 2, owner, queuedAtMs: 0, changedAtMs: 0, dueAtMs: null, isIsolated: false, ...fields }; // prettier-ignore
}

const ask = <T>(answer: () => T): Promise<T> =>
  isAway ? Promise.reject(new Error('the store is away')) : Promise.resolve(answer());

function make(unlistedAfterMs = 5_000): RunnerWatch {
  const ports = {
    log: {
      submit: (_: string, command: Command) =>
        ask(() => {
          if (command.kind === 'takeover') taken.push(command.runId);
          if (command.kind === 'takeover') endedEpochs.push(command.epoch);
          runs = runs.filter(({ _id }) => command.kind !== 'takeover' || _id !== command.runId);
          return { ok: true, c: 4, answer: {}, head: {}, replayed: isReplayed };
        }),
      readTip: (sessionId: string) => ask(() => ({ head: heads.get(sessionId) ?? emptyHead(sessionId) })),
    },
    runs: {
      runningOf: (owner: string) => ask(() => runs.filter((row) => row.owner === owner)),
      owners: () => ask(() => runs.map(({ owner }) => owner)),
    },
    runners: {
      listAll: () => ask(() => [...runners.values()]),
      find: (id: string) => ask(() => runners.get(id)),
      remove: ({ _id, beat }: RunnerRow) => ask(() => runners.get(_id)?.beat === beat && runners.delete(_id)),
    },
    replicas: {
      beat: () => ask(() => replicas.set('me', (replicas.get('me') ?? 0) + 1)),
      list: () => ask(() => [...replicas].map(([_id, value]) => ({ _id, beat: value }))),
      remove: (id: string) => ask(() => replicas.delete(id)),
    },
    onTakeover: (cause: string) => counted.push(cause),
  };
  const options = { ...ports, logger, lostAfterMs: 15_000, unlistedAfterMs };
  return new RunnerWatch(options as unknown as RunnerWatchOptions);
}

function beat(id: string): void {
  const row = runners.get(id);
  if (row) runners.set(id, { ...row, beat: row.beat + 1 });
}

/** Time passes; these runners beat every five seconds. */
async function pass(seconds: number, beating: string[] = []): Promise<void> {
  for (let second = 0; second < seconds; second++) {
    if (second % 5 === 0) beating.forEach(beat);
    await jest.advanceTimersByTimeAsync(1_000);
  }
}

beforeEach(() => {
  jest.useFakeTimers();
  runners = new Map();
  replicas = new Map();
  runs = [];
  taken = [];
  endedEpochs = [];
  heads = new Map();
  counted = [];
  isAway = false;
  isReplayed = false;
  watch = make();
  watch.start();
});
afterEach(() => {
  watch.stop();
  jest.useRealTimers();
});

describe('a runner', () => {
  it('leaves no run behind that it has given back and got again, while the row still shows its earlier life', async () => {
    runs = [run('ra', 'a', { epoch: 2 })];
    const again = { id: 'ra', no: 1, state: 'running' as const, owner: 'a', pool: 'p', acceptedTs: 0, principal: 'u', consumedTo: 0 }; // prettier-ignore
    heads.set('ra', { ...emptyHead('ra'), epoch: 4, run: again });
    await watch.takeOverAll('a', 'drain', [{ sessionId: 'ra', runId: 'ra', epoch: 4 }]);
    expect(endedEpochs.toSorted()).toEqual([2, 4]);
  });

  it('is lost when its beat has not moved for 15 s, and within 17', async () => {
    runners.set('a', runner('a'));
    runners.set('b', runner('b'));
    runs = [run('ra', 'a'), run('rb', 'b')];
    await pass(20, ['a', 'b']);
    expect(taken).toEqual([]);
    await pass(11, ['b']);
    expect(taken).toEqual([]);
    await pass(6, ['b']);
    expect(taken).toEqual(['ra']);
    expect([...runners.keys()]).toEqual(['b']);
    expect(counted).toEqual(['lease']);
  });

  it('that was marked as lost is left to who marked it, for three seconds', async () => {
    runners.set('a', { ...runner('a'), isLost: true });
    runs = [run('ra', 'a')];
    await pass(3);
    expect(taken).toEqual([]);
    await pass(3);
    expect(taken).toEqual(['ra']);
  });

  it('without any row is lost 10 s after its run was seen', async () => {
    runs = [run('ra', 'nobody')];
    await pass(10);
    expect(taken).toEqual([]);
    await pass(4);
    expect(taken).toEqual(['ra']);
  });

  it('that died with the replica that held it is lost 10 s after another began to look', async () => {
    runners.set('a', { ...runner('a'), replica: 'killed' });
    replicas.set('killed', 7);
    runs = [run('ra', 'a')];
    await pass(10);
    expect(taken).toEqual([]);
    await pass(2);
    expect(taken).toEqual(['ra']);
  });

  it('that left its replica with it has 10 s to attach to another', async () => {
    runners.set('a', { ...runner('a'), replica: 'stopped' });
    runs = [run('ra', 'a')];
    await pass(9);
    runners.set('a', { ...runner('a'), generation: 2, beat: 2 });
    await pass(20, ['a']);
    expect(taken).toEqual([]);
  });

  it('whose replica lives has the whole 15 s, also where that is another one', async () => {
    runners.set('a', { ...runner('a'), replica: 'other' });
    runs = [run('ra', 'a')];
    for (let second = 0; second < 15; second++) {
      replicas.set('other', second);
      await pass(1);
    }
    expect(taken).toEqual([]);
    replicas.set('other', 99);
    await pass(2);
    expect(taken).toEqual(['ra']);
  });
});

describe('a session replica', () => {
  it('is forgotten a minute after its beat last moved', async () => {
    replicas.set('killed', 7);
    await pass(60);
    expect(replicas.has('killed')).toBe(true);
    await pass(3);
    expect([...replicas.keys()]).toEqual(['me']);
  });

  it('is not lost by an outage of the store, however long', async () => {
    runners.set('a', runner('a'));
    runs = [run('ra', 'a')];
    await pass(10, ['a']);
    isAway = true;
    await pass(60);
    isAway = false;
    await pass(12);
    expect(taken).toEqual([]);
    await pass(8);
    expect(taken).toEqual(['ra']);
  });

  it('that can not be taken over now is tried again, and holds up no other', async () => {
    runners.set('a', runner('a'));
    runs = [run('ra', 'a')];
    await pass(14);
    isReplayed = true;
    await pass(10);
    expect(taken).toEqual(['ra']);
    expect(counted).toEqual([]);
  });
});

describe('a running run', () => {
  const missing = new Set(['ra']);

  it('is taken back when two successive beats of its runner do not list it', async () => {
    runs = [run('ra', 'a')];
    expect(await watch.compare('a', [], new Set())).toEqual(missing);
    expect(taken).toEqual([]);
    await watch.compare('a', [], missing);
    expect(taken).toEqual(['ra']);
    expect(counted).toEqual(['unlisted']);
  });

  it('is left with its runner while it is younger than five seconds, however long it was queued', async () => {
    runs = [run('ra', 'a', { queuedAtMs: Date.now() - 60_000, changedAtMs: Date.now() - 4_000 })];
    await watch.compare('a', [], missing);
    expect(taken).toEqual([]);
    jest.advanceTimersByTime(1_000);
    await watch.compare('a', [], missing);
    expect(taken).toEqual(['ra']);
  });

  it('that is listed under another epoch is missing', async () => {
    runs = [run('ra', 'a')];
    expect(await watch.compare('a', [{ sessionId: 'ra', runId: 'ra', epoch: 1 }], new Set())).toEqual(missing);
    expect(await watch.compare('a', [{ sessionId: 'ra', runId: 'ra', epoch: 2 }], missing)).toEqual(new Set());
  });
});

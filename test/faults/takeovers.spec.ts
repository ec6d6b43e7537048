import type { StoredCommit, StoredHead } from './stored';
import { takeoversOf, type Strike } from './takeovers';

const RUN = 's:r1';
const queued = { id: RUN, state: 'queued', owner: null };
const drivenBy = (owner: string) => ({ id: RUN, state: 'running', owner });

/** A commit at this second. */
function commit(second: number, id: string, run: StoredHead['run']): StoredCommit {
  const head = { c: 0, seq: 0, ts: 0, epoch: 0, run };
  return { sessionId: 's', c: 0, commitIds: [id], frames: [], head, ts0: second * 1_000_000, hash: '', body: {} };
}

const kill = (second: number, instance: string): Strike => ({
  fault: { kind: 'kill', target: 'agent-runner', pauseMs: 0, durationMs: 0 },
  startedAt: second * 1_000,
  endedAt: (second + 1) * 1_000,
  instance,
});

const start = [
  commit(1, 'asked', queued),
  commit(2, `claim.${RUN}.1.a`, drivenBy('a')),
  commit(3, `${RUN}.2.1`, drivenBy('a')),
];

it('tells when a run was lost, queued, claimed again and heard of, and what struck its owner', () => {
  const commits = [
    ...start,
    commit(7, `takeover.${RUN}.2`, queued),
    commit(8, `claim.${RUN}.3.b`, drivenBy('b')),
    commit(9, `${RUN}.4.1`, drivenBy('b')),
    commit(10, `${RUN}.4.2`, null),
  ];
  const strikes = [kill(1, 'a'), kill(5, 'a'), kill(6, 'c')];
  expect(takeoversOf(commits, { strikes, noticedAt: new Map([['a', [1_500, 6_500]]]) })).toEqual([
    {
      runId: RUN,
      strike: strikes[1],
      beside: [strikes[2]],
      noticedAt: 6_500,
      queuedAt: 7_000,
      claimedAt: 8_000,
      firstWordAt: 9_000,
    },
  ]);
});

it('counts each loss by itself, also of an owner that had said nothing', () => {
  const commits = [
    ...start,
    commit(7, `takeover.${RUN}.2`, queued),
    commit(8, `claim.${RUN}.3.b`, drivenBy('b')),
    commit(12, `takeover.${RUN}.4`, queued),
    commit(13, `claim.${RUN}.5.c`, drivenBy('c')),
    commit(14, `${RUN}.6.1`, drivenBy('c')),
  ];
  const found = takeoversOf(commits, { strikes: [kill(5, 'a'), kill(10, 'b')], noticedAt: new Map() });
  expect(found.map(({ strike, claimedAt, firstWordAt }) => [strike?.startedAt, claimedAt, firstWordAt])).toEqual([
    [5_000, 8_000, undefined],
    [10_000, 13_000, 14_000],
  ]);
});

it('blames no pause that was over, and no partition from others than sessions', () => {
  const commits = [...start, commit(30, `takeover.${RUN}.2`, queued), commit(31, `claim.${RUN}.3.b`, drivenBy('b'))];
  const stop: Strike = { ...kill(5, 'a'), fault: { kind: 'stop', target: 'agent-runner', pauseMs: 0, durationMs: 0 } };
  const cut = {
    kind: 'partition',
    target: 'agent-runner',
    peer: 'model',
    silent: false,
    pauseMs: 0,
    durationMs: 0,
  } as const;
  const strikes = [stop, { ...kill(29, 'a'), fault: cut }];
  expect(takeoversOf(commits, { strikes, noticedAt: new Map() })[0]?.strike).toBeUndefined();
  expect(
    takeoversOf(commits, { strikes: [{ ...stop, endedAt: 29_000 }], noticedAt: new Map() })[0]?.strike,
  ).toBeDefined();
});

it('sees no change of hands where a run ends or is accepted', () => {
  const commits = [...start, commit(4, `${RUN}.2.2`, null), commit(5, 'asked', { ...queued, id: 's:r2' })];
  expect(takeoversOf(commits, { strikes: [], noticedAt: new Map() })).toEqual([]);
});

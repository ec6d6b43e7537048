import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { check, type Played } from './check';
import { hashAfter, type StoredCommit, type StoredHead } from './stored';
import type { ViolationKind } from './violation';

const SESSION = 's';
const RUN = 's:r1';
const TOKEN = 'run-0-0-0';

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'margay-check-'));
  workspace([TOKEN], [TOKEN]);
});
afterEach(() => rmSync(folder, { recursive: true }));

function workspace(counted: string[], edited: string[]): void {
  writeFileSync(join(folder, 'count.txt'), counted.map((line) => `${line}\n`).join(''));
  writeFileSync(join(folder, 'edits.txt'), ['start', ...edited].map((line) => `${line}\n`).join(''));
}

interface Draft {
  ids: string[];
  events: object[];
  epoch: number;
  run: StoredHead['run'];
}

const shell = { tool_call_id: 's.2.1.0', tool_id: 'aider_shell_tool', tool_input: { command: `echo ${TOKEN}` } };
const edit = { tool_call_id: 's.2.1.1', tool_id: 'aider_edit_block_tool', tool_input: { content: TOKEN } };
const ok = { success: true };
const unknown = { success: false, error: 'whether it took effect is unknown' };
const running = { id: RUN, state: 'running', owner: 'first' };
const queued = { id: RUN, state: 'queued', owner: null };

/** The commits of a run that changed hands once, as they should be. */
function drafts(
  results: object[] = [
    { ...shell, ...ok },
    { ...edit, ...ok },
  ],
): Draft[] {
  const called = [shell, edit].map((payload) => ({ type: 'tool_call', payload }));
  const closing = [
    { type: 'assistant', payload: {} },
    { type: 'completion', payload: { done_reason: 'completed' } },
  ];
  return [
    { ids: ['created'], events: [], epoch: 0, run: null },
    { ids: ['asked'], events: [{ type: 'user', payload: {} }], epoch: 1, run: queued },
    { ids: [`claim.${RUN}.1.first`], events: [], epoch: 2, run: running },
    { ids: [`${RUN}.2.1`], events: called, epoch: 2, run: running },
    { ids: [`takeover.${RUN}.2`], events: [], epoch: 3, run: queued },
    { ids: [`claim.${RUN}.3.second`], events: [], epoch: 4, run: running },
    {
      ids: [`${RUN}.4.1`],
      events: results.map((payload) => ({ type: 'tool_result', payload })),
      epoch: 4,
      run: running,
    },
    { ids: [`${RUN}.4.2`], events: closing, epoch: 5, run: null },
  ];
}

/** A log of these commits, all numbers and hashes right. */
function log(all: Draft[] = drafts()): StoredCommit[] {
  let seq = 0;
  let hash = '';
  return all.map(({ ids, events, epoch, run }, index) => {
    const ts0 = 1_000_000 * (index + 1);
    const frames = events.map((event, place) =>
      JSON.stringify({ ...event, seq: (seq += 1), ts: `2030-01-01T00:00:00.${ts0 + place}`, run_id: RUN }),
    );
    const head = { c: index + 1, seq, ts: ts0 + Math.max(0, events.length - 1), epoch, run };
    const commit = {
      sessionId: SESSION,
      c: index + 1,
      commitIds: ids,
      frames,
      head,
      ts0,
      hash: '',
      body: { ids, frames, head },
    };
    hash = hashAfter(hash, commit);
    return { ...commit, hash };
  });
}

const framesOf = (commits: readonly StoredCommit[]): string[] => commits.flatMap(({ frames }) => frames);

interface Seen extends Partial<Played> {
  replay?: string[];
}

/** Kinds of violations that are found. */
async function kindsIn(commits: StoredCommit[], { replay, ...seen }: Seen = {}): Promise<ViolationKind[]> {
  const stored = framesOf(commits);
  const runs = [{ name: 'run-0-0', acceptedAt: 1, endedAt: 2, framesAtEnd: stored.length }];
  const connections = [{ run: 'run-0-0', ends: 1, behindEnd: 0 }];
  const played: Played = { sessionId: SESSION, folder, runs, recording: stored, connections, ...seen };
  const { violations } = await check(played, commits, replay ?? stored);
  return [...new Set(violations.map(({ kind }) => kind))];
}

/** Commit `c` otherwise than it was stored, all else as it is. */
function changed(c: number, change: (commit: StoredCommit) => Partial<StoredCommit>): StoredCommit[] {
  return log().map((commit) => (commit.c === c ? { ...commit, ...change(commit) } : commit));
}

const replaced = (index: number, fields: Partial<Draft>): StoredCommit[] =>
  log(drafts().map((draft, at) => (at === index ? { ...draft, ...fields } : draft)));

describe('the checker of fault rounds', () => {
  it('is content with commits, a recording and effects that fit each other', async () => {
    expect(await kindsIn(log())).toEqual([]);
  });

  it.each<[string, ViolationKind, () => StoredCommit[]]>([
    ['a commit that is missing', 'numbers', () => log().toSpliced(4, 1)],
    [
      'commits in another order',
      'numbers',
      () => [...log().slice(0, 4), ...log().slice(4, 6).toReversed(), ...log().slice(6)],
    ],
    ['a commit number that is taken twice', 'numbers', () => log().toSpliced(4, 0, log()[3] as StoredCommit)],
    ['a commit that was changed', 'chain', () => changed(4, ({ body }) => ({ body: { ...body, ids: ['other'] } }))],
    [
      'a commit that was taken out, its numbers mended',
      'chain',
      () =>
        log(drafts())
          .toSpliced(4, 1)
          .map((commit, index) => ({ ...commit, c: index + 1, head: { ...commit.head, c: index + 1 } })),
    ],
    [
      'a gap in seq',
      'numbers',
      () => changed(4, ({ frames }) => ({ frames: frames.map((text) => text.replace('"seq":3', '"seq":4')) })),
    ],
    ['fewer events than the head counts', 'numbers', () => changed(4, ({ frames }) => ({ frames: frames.slice(1) }))],
    ['time of commits that stands still', 'numbers', () => changed(4, () => ({ ts0: 3_000_000 }))],
    [
      'time of events that stands still',
      'numbers',
      () =>
        changed(4, ({ frames: [first = '', second = ''] }) => ({
          frames: [first, second.replace('4000001', '4000000')],
        })),
    ],
    ['a write of an owner that was replaced', 'fenced', () => replaced(6, { ids: [`${RUN}.2.2`] })],
    [
      'a write of an owner behind the takeover in the same commit',
      'fenced',
      () => replaced(4, { ids: [`takeover.${RUN}.2`, `${RUN}.2.2`] }),
    ],
    ['a write while the run was in the queue', 'fenced', () => replaced(5, { ids: [`${RUN}.3.1`] })],
    ['a write for another run', 'fenced', () => replaced(6, { ids: ['s:r2.4.1'] })],
    ['an epoch that falls', 'fenced', () => replaced(5, { epoch: 2 })],
    ['a run without an end', 'stuck', () => log(drafts().slice(0, 7))],
    [
      'a second end',
      'terminal',
      () => log(drafts().toSpliced(7, 0, { ...(drafts()[7] as Draft), ids: [`${RUN}.4.3`], epoch: 4, run: running })),
    ],
    [
      'an event behind the end',
      'terminal',
      () =>
        log([...drafts(), { ids: ['late'], events: [{ type: 'agent_message', payload: {} }], epoch: 5, run: null }]),
    ],
    [
      'an end that is none of ours',
      'terminal',
      () =>
        replaced(7, {
          events: [
            { type: 'assistant', payload: {} },
            { type: 'completion', payload: { done_reason: 'error' } },
          ],
        }),
    ],
    ['a query that is not stored', 'lost', () => replaced(1, { events: [] })],
    ['a call without a result', 'pairs', () => log(drafts([{ ...shell, ...ok }]))],
    [
      'a result that came twice',
      'pairs',
      () =>
        log(
          drafts([
            { ...shell, ...ok },
            { ...edit, ...ok },
            { ...edit, ...ok },
          ]),
        ),
    ],
    [
      'a result that nobody asked for',
      'pairs',
      () =>
        log(
          drafts([
            { ...shell, ...ok },
            { ...edit, ...ok },
            { ...edit, ...ok, tool_call_id: 'other' },
          ]),
        ),
    ],
    [
      'a keyed effect that is unknown',
      'keyed',
      () =>
        log(
          drafts([
            { ...shell, ...ok },
            { ...edit, ...unknown },
          ]),
        ),
    ],
    [
      'an unkeyed failure that took effect',
      'unkeyed',
      () =>
        log(
          drafts([
            { ...shell, success: false },
            { ...edit, ...ok },
          ]),
        ),
    ],
  ])('finds %s', async (_, kind, make) => {
    expect(await kindsIn(make())).toContain(kind);
  });

  it.each<[string, ViolationKind, (stored: string[]) => string[]]>([
    ['an event that was not delivered', 'lost', (stored) => stored.toSpliced(1, 1)],
    ['a last event that was not delivered', 'lost', (stored) => stored.slice(0, -1)],
    ['an event that came twice', 'repeated', (stored) => [...stored, stored[0] ?? '']],
    ['events in another order', 'reordered', ([first = '', second = '', ...rest]) => [second, first, ...rest]],
    ['an event with other bytes', 'altered', ([first = '', ...rest]) => [first.replace('{', '{ '), ...rest]],
  ])('finds %s, live and in a replay', async (_, kind, change) => {
    const stored = framesOf(log());
    expect(await kindsIn(log(), { recording: change(stored) })).toContain(kind);
    expect(await kindsIn(log(), { replay: change(stored) })).toEqual([kind]);
  });

  it('finds streams that end early, twice, or not at all', async () => {
    const run = { name: 'run-0-0', acceptedAt: 1 };
    const connection = { run: 'run-0-0', ends: 1, behindEnd: 0 };
    expect(await kindsIn(log(), { runs: [run] })).toContain('stuck');
    expect(await kindsIn(log(), { runs: [{ ...run, endedAt: 2, framesAtEnd: 1 }] })).toEqual(['terminal']);
    expect(await kindsIn(log(), { connections: [connection, connection] })).toEqual(['terminal']);
    expect(await kindsIn(log(), { connections: [{ ...connection, ends: 2 }] })).toEqual(['terminal']);
    expect(await kindsIn(log(), { connections: [{ ...connection, behindEnd: 1 }] })).toEqual(['terminal']);
    expect(await kindsIn(log(), { connections: [] })).toEqual(['terminal']);
  });

  it('finds effects that happened twice, not although claimed, or unasked', async () => {
    workspace([TOKEN, TOKEN], [TOKEN]);
    expect(await kindsIn(log())).toEqual(['unkeyed']);
    workspace([], [TOKEN]);
    expect(await kindsIn(log())).toEqual(['unkeyed']);
    workspace([TOKEN], []);
    expect(await kindsIn(log())).toEqual(['keyed']);
    workspace([TOKEN], [TOKEN, TOKEN]);
    expect(await kindsIn(log())).toEqual(['keyed']);
    workspace([TOKEN, 'run-0-0-9'], [TOKEN]);
    expect(await kindsIn(log())).toEqual(['unkeyed']);
    workspace([TOKEN, TOKEN], [TOKEN]);
    expect(await kindsIn(log(drafts([{ ...edit, ...ok }])))).toContain('unkeyed');
  });

  it('lets an unkeyed call be unknown, whether it happened or not, but not twice', async () => {
    const doubtful = log(
      drafts([
        { ...shell, ...unknown },
        { ...edit, ...ok },
      ]),
    );
    expect(await kindsIn(doubtful)).toEqual([]);
    workspace([], [TOKEN]);
    expect(await kindsIn(doubtful)).toEqual([]);
    workspace([TOKEN, TOKEN], [TOKEN]);
    expect(await kindsIn(doubtful)).toEqual(['unkeyed']);
  });

  it('lets a command that was killed have begun, but not twice', async () => {
    const killed = log(
      drafts([
        { ...shell, success: false, error: "Tool 'aider_shell_tool' was killed" },
        { ...edit, ...ok },
      ]),
    );
    expect(await kindsIn(killed)).toEqual([]);
    workspace([TOKEN, TOKEN], [TOKEN]);
    expect(await kindsIn(killed)).toEqual(['unkeyed']);
  });

  it('lets a run give up a model that could not be reached, and only then', async () => {
    const payload = { done_reason: 'error', failure_reason: 'connection' };
    const events = [
      { type: 'assistant', payload: {} },
      { type: 'completion', payload },
    ];
    const at = Date.parse('2030-01-01T00:00:00Z');
    expect(await kindsIn(replaced(7, { events }), { outages: [{ from: at - 5_000, to: at - 1_000 }] })).toEqual([]);
    expect(await kindsIn(replaced(7, { events }), { outages: [{ from: at + 5_000, to: at + 9_000 }] })).toEqual([
      'terminal',
    ]);
    expect(await kindsIn(replaced(7, { events }))).toEqual(['terminal']);
  });

  it('counts what was unknown, parked and ended', async () => {
    const parked = { type: 'completion', payload: { done_reason: 'failed', error: 'poison' } };
    const commits = log(
      drafts([
        { ...shell, ...unknown },
        { ...edit, ...ok },
      ]).with(7, { ...(drafts()[7] as Draft), events: [{ type: 'assistant', payload: {} }, parked] }),
    );
    const stored = framesOf(commits);
    const runs = [{ name: 'run-0-0', acceptedAt: 1, endedAt: 2, framesAtEnd: stored.length }];
    const connections = [{ run: 'run-0-0', ends: 1, behindEnd: 0 }];
    const findings = await check({ sessionId: SESSION, folder, runs, recording: stored, connections }, commits, stored);
    expect(findings).toMatchObject({
      violations: [],
      runs: 1,
      commits: 8,
      effects: 2,
      unknown: 1,
      parked: 1,
      terminalEvents: 1,
    });
  });
});

import { acceptCommand, createCommand, hashed, runRequest } from '@margay/testing';
import { fold } from './build';
import type { Command, RecoverCommand } from './command';
import type { CommitDocument, Tip } from './document';
import { emptyHead } from './head';

let tip: Tip;
let documents: CommitDocument[];

beforeEach(() => {
  tip = { head: emptyHead('session'), hash: '' };
  documents = [];
  submit(createCommand());
});

function submit(command: Command): string {
  const { document, rejected } = fold(tip, [hashed(command)], 1_700_000_000_000_000);
  if (!document) return rejected[0]?.rejection.reason ?? '';
  tip = { head: document.head, hash: document.hash };
  documents.push(document);
  return 'ok';
}

/** A run of seven events: three that open it, one of its own, two that close it. */
function turn(text: string): void {
  submit(acceptCommand(text));
  end();
}

function end(): void {
  const runId = tip.head.run?.id ?? '';
  submit({ kind: 'claim', commitId: `claim ${runId}`, runId, epoch: tip.head.epoch, owner: 'r' });
  const completion = { done: true, done_reason: 'completed' };
  const own = { commitId: `end ${runId}`, runId, epoch: tip.head.epoch };
  submit({ kind: 'finish', ...own, events: [], records: [], text: 'answer', completion });
}

function userEvent(text: string): { seq: number; ts: number; runId: string } {
  for (const { events } of documents)
    for (const { seq, ts, frame } of events) {
      const event = JSON.parse(frame) as { type: string; payload: { text?: string }; run_id: string };
      if (event.type === 'user' && event.payload.text === text) return { seq, ts, runId: event.run_id };
    }
  throw new Error(`nobody said ${text}`);
}

const retry = (text: string, id = `retry ${text}`): RecoverCommand => ({
  kind: 'recover',
  commitId: id,
  action: 'retry',
  from: userEvent(text),
  run: runRequest(`${text} again`),
});

it('cuts the turn and everything behind it, and starts it again under a new run', () => {
  turn('one');
  turn('two');
  const { seq, ts } = userEvent('two');
  const lastSeq = tip.head.seq;
  expect(submit(retry('two'))).toBe('ok');
  expect(tip.head.cuts).toEqual([[seq, lastSeq]]);
  expect(tip.head.run?.id).toBe('session:r3');
  const [recovery, , accepted, user] = (documents.at(-1)?.events ?? []).map(({ frame }) => JSON.parse(frame) as Frame);
  expect(recovery).toMatchObject({ type: 'recovery', payload: { action: 'retry' } });
  expect(Date.parse(recovery?.payload.cut?.from_ts ?? '')).toBe(Math.floor(ts / 1_000));
  expect(accepted?.payload.ts).toBe(accepted?.ts);
  expect(user?.payload.text).toBe('two again');
  expect(documents.at(-1)?.records.map((text) => (JSON.parse(text) as { kind: string }).kind)).toEqual([
    'cut',
    'run',
    'user',
  ]);
});

interface Frame {
  type: string;
  ts: string;
  payload: { action?: string; cut?: { from_ts: string }; ts?: string; text?: string };
}

it('merges cuts that touch', () => {
  turn('one');
  turn('two');
  submit(retry('two'));
  end();
  submit(retry('one'));
  expect(tip.head.cuts).toHaveLength(1);
  expect(tip.head.cuts[0]?.[0]).toBe(userEvent('one').seq);
});

it('refuses a turn that is cut already, a busy session, and one without a turn', () => {
  expect(submit({ ...retryOf(0), commitId: 'a' })).toBe('nothing_to_recover');
  turn('one');
  turn('two');
  submit(retry('two'));
  expect(submit(retry('two', 'again'))).toBe('session_running');
  end();
  expect(submit(retry('two', 'again'))).toBe('nothing_to_recover');
});

const retryOf = (seq: number): RecoverCommand => ({
  kind: 'recover',
  commitId: `retry ${seq}`,
  action: 'retry',
  from: { seq, ts: 1, runId: 'session:r1' },
  run: runRequest('x'),
});

it('refuses the 129th range', () => {
  turn('one');
  // Ranges that do not touch: each retry leaves its own opening events visible.
  for (let i = 0; i < 128; i++) {
    turn(`turn ${i}`);
    expect(submit(retry(`turn ${i}`))).toBe('ok');
    end();
    turn(`kept ${i}`);
  }
  turn('last');
  expect(tip.head.cuts).toHaveLength(128);
  expect(submit(retry('last'))).toBe('cuts_exhausted');
});

it('goes on without cutting anything', () => {
  turn('one');
  expect(submit({ kind: 'recover', commitId: 'go on', action: 'continue', run: runRequest('carry on') })).toBe('ok');
  expect(tip.head).toMatchObject({ cuts: [], run: { id: 'session:r2', state: 'queued' } });
  const types = documents.at(-1)?.events.map(({ frame }) => (JSON.parse(frame) as Frame).type);
  expect(types).toEqual(['recovery', 'context', 'run_accepted', 'user']);
});

it('cuts what the same commit adds, too', () => {
  turn('one');
  submit(acceptCommand('two'));
  const from = userEvent('two');
  const retried: RecoverCommand = { kind: 'recover', commitId: 'r', action: 'retry', from, run: runRequest('again') };
  const { document } = fold(tip, [hashed({ kind: 'cancel', commitId: 'c' }), hashed(retried)], 1_700_000_000_000_000);
  const frames = (document?.events ?? []).map(({ frame, seq }) => ({ ...(JSON.parse(frame) as Frame), seq }));
  expect(frames.map(({ type }) => type)).toEqual([
    ...['assistant', 'completion'],
    ...['recovery', 'context', 'run_accepted', 'user'],
  ]);
  expect(document?.head.cuts).toEqual([[from.seq, frames[1]?.seq]]);
  expect((frames[2]?.payload.cut as { to_ts?: string } | undefined)?.to_ts).toBe(frames[1]?.ts);
});

it('takes no late answer to a question of a turn that is cut', () => {
  turn('one');
  submit(acceptCommand('two'));
  const runId = tip.head.run?.id ?? '';
  submit({ kind: 'claim', commitId: 'claim', runId, epoch: tip.head.epoch, owner: 'r' });
  const callId = 'session.5.1.0';
  const payload = { call_id: callId, call_token: 't', questions: [], timeout_seconds: null, notes_placeholder: null };
  const own = { commitId: 'ask', runId, epoch: tip.head.epoch, records: [] };
  const questions = [{ callId, timeoutSeconds: null }];
  submit({ kind: 'step', ...own, events: [{ type: 'user_question', payload }], questions });
  submit({ kind: 'cancel', commitId: 'cancel' });
  expect(tip.head.unanswered).toHaveLength(1);
  expect(submit(retry('two'))).toBe('ok');
  const said = { callId, answers: [], notes: null, via: 'rest', text: 'blue', late: runRequest('late') };
  expect(submit({ kind: 'answer', commitId: 'answer', ...said })).toBe('question_decided');
});

it('refuses the last turn where another one came meanwhile', () => {
  turn('one');
  const from = { ...userEvent('one'), isLast: true };
  turn('two');
  const last = { kind: 'recover' as const, action: 'retry' as const, run: runRequest('again') };
  expect(submit({ ...last, commitId: 'a', from })).toBe('changed');
  expect(submit({ ...last, commitId: 'b', from: { ...userEvent('two'), isLast: true } })).toBe('ok');
});

it('titles the session anew where its first turn is retried, and only then', () => {
  turn('one');
  turn('two');
  submit({ ...retry('two'), run: runRequest('three') });
  end();
  expect(tip.head.title).toBe('one');
  submit({ ...retry('one'), run: runRequest('other') });
  end();
  expect(tip.head.title).toBe('other');
  submit({ ...retry('other'), run: runRequest('last') });
  expect(tip.head.title).toBe('last');
});

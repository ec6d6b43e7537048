import { acceptCommand, createCommand, hashed, messageCommand, runRequest } from '@margay/testing';
import { fold } from './build';
import type { AnswerCommand, Command, StepCommand } from './command';
import { decide } from './decide';
import { isRejected, type Accepted } from './decision';
import { effectsOf } from './effects';
import { HEAD_MAX_BYTES, OPEN_QUESTIONS_MAX, emptyHead, type Head } from './head';
import { sessionState } from './state';

const TS = 1_700_000_000_000_000;
const SECOND = 1_000_000;
const RUN_ID = 'session:r1';
const CALL = 'session.2.1.0';
const owned = { runId: RUN_ID, epoch: 2 };
const asking = (callId = CALL, timeoutSeconds: number | null = 60): StepCommand => ({
  kind: 'step',
  commitId: `ask ${callId}`,
  ...owned,
  events: [
    {
      type: 'user_question',
      payload: {
        call_id: callId,
        call_token: 't',
        questions: [],
        timeout_seconds: timeoutSeconds,
        notes_placeholder: null,
      },
    },
  ],
  records: [],
  questions: [{ callId, timeoutSeconds }],
});
const waits = (inboxEnd = 0): Command => ({
  kind: 'release',
  commitId: 'wait',
  ...owned,
  cause: 'waiting',
  waiting: { for: [CALL], inboxEnd },
});
const answer: AnswerCommand = {
  kind: 'answer',
  commitId: 'answer',
  callId: CALL,
  answers: [{ text: 'blue' }],
  notes: null,
  via: 'rest',
  text: 'The user answered:\nColour: blue',
  late: runRequest('late answer'),
};
const message = messageCommand('word');
const interrupt: Command = { kind: 'interrupt', commitId: 'interrupt' };
const cancel: Command = { kind: 'cancel', commitId: 'cancel' };
const expire: Command = { kind: 'expire', commitId: 'expire', callId: CALL };

function accepted(head: Head, command: Command, ts = TS): Accepted {
  const decision = decide(head, command, ts);
  if (isRejected(decision)) throw new Error(`refused: ${decision.reject.reason}`);
  return decision;
}

function refusal(head: Head, command: Command, ts = TS): string {
  const decision = decide(head, command, ts);
  return isRejected(decision) ? decision.reject.reason : 'ok';
}

function after(head: Head, ...commands: Command[]): Head {
  return commands.reduce((before, command) => ({ ...accepted(before, command).head, c: before.c + 1 }), head);
}

const claim: Command = { kind: 'claim', commitId: 'claim', runId: RUN_ID, epoch: 1, owner: 'runner' };
const running = after(emptyHead('session'), createCommand(), acceptCommand('question'), claim);
const asked = after(running, asking());
const waiting = after(asked, waits());
const types = ({ events }: Accepted): string[] => events.map(({ event }) => event.type);

describe('a question', () => {
  it('is found by the time of its event, and is shown as what the session waits for', () => {
    expect(asked.questions).toEqual([{ callId: CALL, ts: TS, expiresTs: TS + 60 * SECOND }]);
    expect(sessionState(asked)).toMatchObject({
      running: true,
      status: 'running',
      waiting: { kind: 'question', id: CALL },
    });
    expect(effectsOf(running, asked)).toContainEqual({ kind: 'question', callId: CALL, ts: TS });
  });

  it('needs its event and a short id, and opens once', () => {
    expect(refusal(running, { ...asking(), events: [] })).toBe('invalid');
    expect(refusal(running, asking(`session.${'9'.repeat(64)}`))).toBe('invalid');
    expect(refusal(asked, asking())).toBe('invalid');
    expect(refusal(after(asked, interrupt), asking())).toBe('invalid');
  });

  it('is noted where a late answer finds it, though the commit that opens it closes it again', () => {
    const head = after(running, message);
    const { document } = fold({ head, hash: '' }, [hashed(asking())], TS);
    expect(document?.head.questions).toBeUndefined();
    const ts = document?.events[0]?.ts;
    expect(document?.effects).toContainEqual({ kind: 'question', callId: CALL, ts });
  });

  it('is shown in place of another that the same commit closes', () => {
    const next = after(asked, answer, asking('session.2.1.1'));
    expect(effectsOf(asked, next)).toContainEqual({ kind: 'session' });
  });

  it('leaves the head within its limit with as many others as may be, on the largest context', () => {
    const callIds = Array.from({ length: 3 * OPEN_QUESTIONS_MAX }, (_, n) => `session.${'9'.repeat(50)}.${n}`);
    const claimed = { ...claim, owner: 'o'.repeat(64) };
    let notes = 'x'.repeat(HEAD_MAX_BYTES);
    const large = () => acceptCommand('large', { context: { notes } });
    const idle = after(emptyHead('session'), createCommand());
    while (isRejected(decide(idle, large(), TS))) notes = notes.slice(1);
    let head = after(idle, large(), claimed);
    const open = (from: number) => callIds.slice(from, from + OPEN_QUESTIONS_MAX);
    for (let from = 0; from < callIds.length; from += OPEN_QUESTIONS_MAX) {
      head = after(head, ...open(from).map((id) => asking(id, 60)));
      expect(refusal(head, asking('session.2.9.9'))).toBe('invalid');
      if (from + OPEN_QUESTIONS_MAX < callIds.length)
        for (const callId of open(from)) head = accepted(head, { ...expire, callId }, TS + 60 * SECOND).head;
    }
    const waiting = { for: open(2 * OPEN_QUESTIONS_MAX), inboxEnd: head.inboxEnd };
    head = after(head, { ...waits(), waiting } as Command);
    expect(Buffer.byteLength(JSON.stringify(head))).toBeLessThanOrEqual(HEAD_MAX_BYTES);
    // What the run leaves behind locks nobody out.
    head = after(head, cancel, acceptCommand('next'));
    expect(head.run?.id).toBe('session:r2');
    expect(head.unanswered?.at(-1)?.callId).toBe(callIds.at(-1));
  });

  it('is not waited for where a message came that the model has not read', () => {
    const step = accepted(after(running, message), asking());
    expect(types(step)).toEqual(['user_question', 'user_question_answered']);
    expect(step.head.questions).toBeUndefined();
    expect(step.records.at(-1)).toMatchObject({ kind: 'inbox', item: 'answer', outcome: 'declined' });
  });

  it('stays open over a takeover, for the next owner', () => {
    const takeover: Command = { kind: 'takeover', commitId: 't', runId: RUN_ID, epoch: 2, cause: 'crash' };
    expect(after(asked, takeover)).toMatchObject({ questions: asked.questions, run: { state: 'queued' } });
  });
});

describe('a run that waits', () => {
  it('holds no runner, and its old one is fenced', () => {
    expect(waiting.run).toMatchObject({
      state: 'waiting',
      owner: null,
      waiting: { kind: 'question', for: [CALL], since: TS },
    });
    expect(waiting.epoch).toBe(3);
    expect(effectsOf(asked, waiting)).toContainEqual({ kind: 'fence', runId: RUN_ID, epoch: 3, kill: false });
    expect(refusal(waiting, { ...asking('session.2.1.1') })).toBe('fenced');
  });

  it('is not taken over, claimed or accepted beside', () => {
    const takeover: Command = { kind: 'takeover', commitId: 't', runId: RUN_ID, epoch: 3, cause: 'lease' };
    expect(refusal(waiting, takeover)).toBe('lost');
    expect(refusal(waiting, { ...claim, epoch: 3 })).toBe('lost');
    expect(refusal(waiting, acceptCommand('second'))).toBe('session_running');
  });

  it.each<[string, Command[]]>([
    ['the answer came first', [answer]],
    ['a message came first', [message]],
    ['an interrupt came first', [interrupt]],
  ])('does not wait where %s', (_, before) => {
    expect(refusal(after(asked, ...before), waits())).toBe('changed');
  });

  it('does not wait where a message came that its runner had not heard of', () => {
    const two = after(running, asking(CALL), asking('session.2.1.1'));
    const one = after(two, { ...answer, callId: 'session.2.1.1' });
    expect(refusal(one, waits(0))).toBe('changed');
    expect(refusal(one, waits(1))).toBe('ok');
  });

  it('names each question once', () => {
    const often = { ...waits(), waiting: { for: Array.from({ length: 9 }, () => CALL), inboxEnd: 0 } } as Command;
    expect(after(asked, often).run?.waiting?.for).toEqual([CALL]);
  });

  it('tells its next owner that nobody has driven it since, and no other one', () => {
    const woken = after(waiting, answer);
    expect(woken.run?.isWoken).toBe(true);
    const claimed = after(woken, { ...claim, epoch: 4 });
    expect(claimed.run?.isWoken).toBe(true);
    const lost: Command = { kind: 'takeover', commitId: 't', runId: RUN_ID, epoch: 5, cause: 'unlisted' };
    expect(after(claimed, lost).run?.isWoken).toBeUndefined();
  });

  it('must say what for', () => {
    const nothing = { kind: 'release' as const, commitId: 'w', ...owned, cause: 'waiting' as const };
    expect(refusal(asked, nothing)).toBe('invalid');
    expect(refusal(asked, { ...nothing, waiting: { for: [], inboxEnd: 0 } })).toBe('invalid');
  });

  it.each<[string, Command, string[], string]>([
    ['an answer', answer, ['user_question_answered'], 'answered'],
    ['a message, which declines', message, ['user_question_answered', 'user_steer'], 'declined'],
    ['an interrupt', interrupt, ['user_question_answered', 'user_steer'], 'interrupted'],
  ])('is queued again by %s', (_, command, events, outcome) => {
    const decided = accepted(waiting, command);
    expect(types(decided)).toEqual(events);
    expect(decided.head).toMatchObject({ epoch: 4, run: { state: 'queued', owner: null } });
    expect(decided.head.run?.waiting).toBeUndefined();
    expect(decided.head.questions).toBeUndefined();
    expect(decided.records[0]).toMatchObject({ kind: 'inbox', n: 1, item: 'answer', callId: CALL, outcome });
    expect(decided.events[0]?.event.payload).toMatchObject({ call_id: CALL, outcome });
  });

  it('is queued again when the time of its question is over, not before', () => {
    expect(refusal(waiting, expire, TS + 60 * SECOND - 1)).toBe('changed');
    const expired = accepted(waiting, expire, TS + 60 * SECOND);
    expect(expired.head).toMatchObject({ epoch: 4, run: { state: 'queued' } });
    expect(expired.events[0]?.event.payload).toMatchObject({ outcome: 'timed_out', answers: null, delivery: null });
    expect(refusal(after(running, asking(CALL, null)), expire, TS + 1e15)).toBe('changed');
  });

  it('ends on cancel: its question is closed first, and what it left running is killed', () => {
    const canceled = accepted(waiting, cancel);
    expect(types(canceled)).toEqual(['user_question_answered', 'assistant', 'completion']);
    expect(canceled.head).toMatchObject({ run: null, epoch: 4 });
    expect(effectsOf(waiting, canceled.head)).toContainEqual({ kind: 'fence', runId: RUN_ID, epoch: 4, kill: true });
  });
});

describe('an answer', () => {
  it('reaches a run that waits in place without taking it from its runner', () => {
    const decided = accepted(asked, answer);
    expect(decided.head).toMatchObject({ epoch: 2, inboxEnd: 1, run: { state: 'running', owner: 'runner' } });
    expect(decided.answer).toEqual({ session_id: 'session', delivery: 'run' });
    expect(decided.events[0]?.event.payload).toEqual({
      call_id: CALL,
      outcome: 'answered',
      answered_via: 'rest',
      answers: [{ text: 'blue' }],
      notes: null,
      delivery: 'run',
    });
  });

  it('counts once', () => {
    expect(refusal(after(waiting, answer), answer)).toBe('question_decided');
    expect(refusal(after(waiting, message), answer)).toBe('question_decided');
    expect(refusal(running, answer)).toBe('question_decided');
  });

  it.each<[string, Head]>([
    ['ended', after(waiting, cancel)],
    ['was interrupted and has ended', after(waiting, interrupt, cancel)],
  ])('opens a new turn where the run %s', (_, head) => {
    const late = accepted(head, answer);
    expect(types(late)).toEqual(['user_question_answered', 'context', 'run_accepted', 'user']);
    expect(late.events[0]?.event.payload).toMatchObject({ delivery: 'message' });
    expect(late.answer).toMatchObject({ delivery: 'message', run_id: 'session:r2' });
    expect(late.events[2]?.event.payload).toMatchObject({ ts: '2023-11-14T22:13:20.000002+00:00' });
    expect(refusal(late.head, answer)).toBe('question_decided');
  });

  it('steers the run that goes on without it', () => {
    const head = after(waiting, interrupt);
    const late = accepted(head, answer);
    expect(types(late)).toEqual(['user_question_answered', 'user_steer']);
    expect(late.answer).toMatchObject({ delivery: 'message', run_id: RUN_ID });
  });

  it('is refused where it is late and nothing can be started', () => {
    const { late: _, ...bare } = answer;
    expect(refusal(after(waiting, cancel), bare)).toBe('changed');
    expect(refusal(waiting, bare)).toBe('ok');
  });

  it('comes too late for a terminated session', () => {
    const terminate: Command = { kind: 'terminate', commitId: 'x', cancelledTriggers: 0 };
    expect(refusal(after(waiting, terminate), answer)).toBe('session_terminated');
  });
});

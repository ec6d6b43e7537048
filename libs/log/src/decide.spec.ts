import { acceptCommand, createCommand, messageCommand } from '@margay/testing';
import type { Command, Completion, RejectReason, RunRequest } from './command';
import { decide } from './decide';
import { INTERRUPT_TEXT } from './decide-inbox';
import { ALL_DECIDE_RULES, isRejected, type Accepted } from './decision';
import { HEAD_MAX_BYTES, emptyHead, type Head } from './head';

const TS = 1_700_000_000_000_000;
const RUN_ID = 'session:r1';
const DONE: Completion = { done: true, done_reason: 'completed', task_result: 'yes' };

function accepted(head: Head, command: Command, ts = TS): Accepted {
  const decision = decide(head, command, ts);
  if (isRejected(decision)) throw new Error(`refused: ${decision.reject.reason}`);
  return decision;
}

/** The head after some commands, each in a commit of its own. */
function after(...commands: Command[]): Head {
  return commands.reduce((head, command) => ({ ...accepted(head, command).head, c: head.c + 1 }), emptyHead('session'));
}

const create = createCommand();
const accept = acceptCommand('question');
const message = messageCommand('word');
const interrupt: Command = { kind: 'interrupt', commitId: 'interrupt' };
const cancel: Command = { kind: 'cancel', commitId: 'cancel' };
const bind: Command = {
  kind: 'bind',
  commitId: 'bind',
  binding: { project: 'q', cwd: null },
  context: { project: 'q' },
};
const terminate: Command = { kind: 'terminate', commitId: 'terminate', cancelledTriggers: 2 };
const claim: Command = { kind: 'claim', commitId: 'claim', runId: RUN_ID, epoch: 1, owner: 'runner' };
const takeover: Command = { kind: 'takeover', commitId: 'takeover', runId: RUN_ID, epoch: 2, cause: 'lease' };
const park: Command = { kind: 'park', commitId: 'park', runId: RUN_ID, reason: 'needs_review' };
const owned = { runId: RUN_ID, epoch: 2 };
const release: Command = { kind: 'release', commitId: 'release', ...owned, cause: 'drain' };
const step: Command = { kind: 'step', commitId: 'step', ...owned, events: [], records: [] };
const finish: Command = {
  kind: 'finish',
  commitId: 'finish',
  ...owned,
  events: [],
  records: [],
  text: 'answer',
  completion: DONE,
};

const HEADS = {
  none: emptyHead('session'),
  idle: after(create),
  queued: after(create, accept),
  running: after(create, accept, claim),
  'running with a message': after(create, accept, claim, message),
  requeued: after(create, accept, claim, takeover),
  'running again': after(create, accept, claim, takeover, { ...claim, epoch: 3 }),
  ended: after(create, accept, claim, finish),
  terminated: after(create, accept, claim, terminate),
};

type Outcome = 'ok' | RejectReason;
const COLUMNS = Object.keys(HEADS) as (keyof typeof HEADS)[];

/** What becomes of each command on each head, in the order of the heads. */
const TABLE: [command: Command, ...outcomes: Outcome[]][] = [
  [create, 'ok', ...Array<Outcome>(8).fill('session_exists')],
  [accept, 'session_not_found', 'ok', ...Array<Outcome>(5).fill('session_running'), 'ok', 'session_terminated'],
  [message, 'session_not_found', ...Array<Outcome>(7).fill('ok'), 'session_terminated'],
  [
    interrupt,
    'session_not_found',
    'no_active_run',
    ...Array<Outcome>(5).fill('ok'),
    'no_active_run',
    'session_terminated',
  ],
  [
    cancel,
    'session_not_found',
    'no_active_run',
    ...Array<Outcome>(5).fill('ok'),
    'no_active_run',
    'session_terminated',
  ],
  [bind, 'session_not_found', ...Array<Outcome>(7).fill('ok'), 'session_terminated'],
  [terminate, 'session_not_found', ...Array<Outcome>(7).fill('ok'), 'session_terminated'],
  [claim, 'session_not_found', 'lost', 'ok', 'lost', 'lost', 'lost', 'lost', 'lost', 'lost'],
  [takeover, 'session_not_found', 'lost', 'lost', 'ok', 'ok', 'lost', 'lost', 'lost', 'lost'],
  [park, 'session_not_found', 'lost', ...Array<Outcome>(5).fill('ok'), 'lost', 'lost'],
  [release, 'session_not_found', 'fenced', 'fenced', 'ok', 'ok', 'fenced', 'fenced', 'fenced', 'fenced'],
  [step, 'session_not_found', 'fenced', 'fenced', 'ok', 'ok', 'fenced', 'fenced', 'fenced', 'fenced'],
  [finish, 'session_not_found', 'fenced', 'fenced', 'ok', 'inbox', 'fenced', 'fenced', 'fenced', 'fenced'],
];

describe('decide', () => {
  const cells = TABLE.flatMap(([command, ...outcomes]) =>
    outcomes.map((outcome, index) => ({ command, outcome, on: COLUMNS[index] as keyof typeof HEADS })),
  );

  it.each(cells)('answers $command.kind on a head that is $on: $outcome', ({ command, outcome, on }) => {
    const decision = decide(HEADS[on], command, TS);
    expect(isRejected(decision) ? decision.reject.reason : 'ok').toBe(outcome);
  });

  it('starts no run that was looked at before a fence, or in another project', () => {
    const idle = after(create);
    const fenced = accepted(idle, { kind: 'fence', commitId: 'fence' });
    expect(fenced).toMatchObject({ head: { epoch: idle.epoch + 1 }, events: [], records: [] });
    const { binding, epoch } = idle;
    const start = (seen: RunRequest['seen'], head = fenced.head) => decide(head, acceptCommand('a', { seen }), TS);
    const changed = { reject: { reason: 'changed' } };
    expect(start({ binding, epoch })).toMatchObject(changed);
    expect(start({ binding: { project: 'p', cwd: null } })).toMatchObject(changed);
    expect(start({ binding })).toMatchObject({ head: { runNo: 1 } });
    expect(start({ binding, epoch }, idle)).toMatchObject({ head: { runNo: 1 } });
    const late = { ...messageCommand('b', { seen: { binding, epoch } }) };
    expect(decide(fenced.head, late, TS)).toMatchObject(changed);
    expect(decide(after(create, accept), late, TS)).toMatchObject({ answer: { steered: true } });
    expect(decide(after(create, accept), { kind: 'fence', commitId: 'fence' }, TS)).toMatchObject({
      reject: { reason: 'session_running' },
    });
  });

  it('changes no head it is given', () => {
    const before = JSON.stringify(HEADS);
    for (const { command, on } of cells) decide(HEADS[on], command, TS);
    expect(JSON.stringify(HEADS)).toBe(before);
  });

  it.each<[Command, keyof typeof HEADS, number]>([
    [accept, 'idle', 1],
    [message, 'idle', 1],
    [claim, 'queued', 1],
    [takeover, 'running', 1],
    [release, 'running', 1],
    [finish, 'running', 1],
    [cancel, 'running', 1],
    [terminate, 'idle', 1],
    [terminate, 'running', 2],
    [step, 'running', 0],
    [bind, 'idle', 0],
    [bind, 'running', 0],
    [message, 'running', 0],
    [interrupt, 'running', 0],
  ])('raises the epoch as it must: %j on %s by %i', (command, on, by) => {
    expect(accepted(HEADS[on], command).head.epoch - HEADS[on].epoch).toBe(by);
  });

  it('accepts a run with context, run_accepted and user, whose times are those of their frames', () => {
    const { events, records, answer, head } = accepted(
      HEADS.idle,
      acceptCommand('  What is this?  ', { context: { a: 1 } }),
    );
    expect(events.map(({ event, runId }) => [event.type, runId])).toEqual([
      ['context', RUN_ID],
      ['run_accepted', RUN_ID],
      ['user', RUN_ID],
    ]);
    expect(events[1]?.event.payload).toMatchObject({ run_id: RUN_ID, ts: '2023-11-14T22:13:20.000001+00:00' });
    expect(records.map(({ kind }) => kind)).toEqual(['run', 'user']);
    expect(answer).toEqual({ session_id: 'session', run_id: RUN_ID, steered: false });
    expect(head).toMatchObject({ title: 'What is this?', context: { a: 1 }, run: { state: 'queued', owner: null } });
  });

  it('keeps the first title and the first binding', () => {
    const first = after(create, acceptCommand('one', { binding: { project: 'p', cwd: null } }), cancel);
    const second = accepted(first, acceptCommand('two', { binding: { project: 'q', cwd: null } })).head;
    expect(second).toMatchObject({ title: 'one', binding: { project: 'p' }, runNo: 2 });
  });

  it('cuts no pair of surrogates in two and gives blank text no title', () => {
    expect(accepted(HEADS.idle, acceptCommand(`${'x'.repeat(119)}🐆`)).head.title).toBe('x'.repeat(119));
    expect(accepted(HEADS.idle, acceptCommand('   ')).head.title).toBeNull();
  });

  it('numbers messages and interrupts in one inbox', () => {
    const head = after(create, accept, claim, message);
    const { records, events, head: next } = accepted(head, interrupt);
    expect(records).toEqual([{ kind: 'inbox', n: 2, item: 'interrupt', text: INTERRUPT_TEXT }]);
    expect(events[0]?.event).toEqual({ type: 'user_steer', payload: { text: INTERRUPT_TEXT } });
    expect(next.inboxEnd).toBe(2);
  });

  it('consumes the inbox forwards only, and no further than it goes', () => {
    const head = after(create, accept, claim, message, { ...step, consumedTo: 1 });
    expect(head.run?.consumedTo).toBe(1);
    for (const consumedTo of [0, 2])
      expect(decide(head, { ...step, consumedTo }, TS)).toMatchObject({ reject: { reason: 'invalid' } });
    expect(accepted(head, { ...finish, consumedTo: 1 }).records.map(({ kind }) => kind)).toEqual(['end']);
  });

  it('puts what a step consumes behind its own records, and its sandbox last', () => {
    const head = HEADS['running with a message'];
    const command: Command = {
      ...step,
      records: [{ kind: 'answer' }],
      consumedTo: 1,
      sandbox: { incarnation: 'i' },
    };
    expect(accepted(head, command).records.map(({ kind }) => kind)).toEqual(['answer', 'consumed', 'sandbox']);
    expect(accepted(head, command).head.sandbox).toEqual({ incarnation: 'i' });
  });

  it('ends a run with assistant and completion and forgets run and sandbox', () => {
    const { events, head } = accepted({ ...HEADS.running, sandbox: { incarnation: 'i' } }, finish);
    expect(events.map(({ event }) => event)).toEqual([
      { type: 'assistant', payload: { text: 'answer' } },
      { type: 'completion', payload: DONE },
    ]);
    expect(head).toMatchObject({
      run: null,
      sandbox: null,
      lastRun: { id: RUN_ID, done: true, doneReason: 'completed' },
    });
  });

  it('parks a run for review in whatever state it is, with a completion that says so', () => {
    for (const state of ['queued', 'running', 'running with a message', 'requeued'] as const) {
      const { head, events } = accepted(HEADS[state], park);
      expect(head).toMatchObject({
        run: null,
        epoch: HEADS[state].epoch + 1,
        lastRun: { failureReason: 'needs_review' },
      });
      expect(events.at(-1)?.event).toMatchObject({
        type: 'completion',
        payload: { done_reason: 'error', failure_reason: 'needs_review' },
      });
    }
  });

  it('says in the completion of a cancel how many messages stayed unread', () => {
    const { events } = accepted(HEADS['running with a message'], cancel);
    expect(events[1]?.event.payload).toMatchObject({
      done_reason: 'canceled',
      last_error: '1 message(s) stayed unread',
    });
  });

  it('cancels the run that a termination ends, and stamps the termination with the time of its event', () => {
    const { events, head } = accepted(HEADS.running, terminate);
    expect(events.map(({ event }) => event.type)).toEqual(['assistant', 'completion', 'session_terminated']);
    expect(head.terminated).toEqual({ ts: TS + 2, cancelledTriggers: 2 });
  });

  it('refuses a context that would make the head too large', () => {
    const large = acceptCommand('large', { context: { notes: 'ž'.repeat(HEAD_MAX_BYTES / 2) } });
    expect(decide(HEADS.idle, large, TS)).toMatchObject({ reject: { reason: 'head_too_large' } });
    expect(
      decide(emptyHead('session'), createCommand({ context: { notes: 'x'.repeat(HEAD_MAX_BYTES) } }), TS),
    ).toMatchObject({ reject: { reason: 'head_too_large' } });
  });

  it('lets a run on the largest context be claimed, driven, steered and ended, within the limit', () => {
    let notes = 'x'.repeat(HEAD_MAX_BYTES);
    const large = () => acceptCommand('large', { context: { notes } });
    while (isRejected(decide(HEADS.idle, large(), TS))) notes = notes.slice(1);
    const sandbox = { incarnation: 'f'.repeat(64) };
    const completion: Completion = {
      done: false,
      done_reason: 'r'.repeat(5_000),
      failure_reason: 'f'.repeat(5_000),
      blocked_code: 'b'.repeat(5_000),
      models_tried: Array.from({ length: 50 }, () => 'm'.repeat(500)),
    };
    const head = after(
      create,
      large(),
      { ...claim, owner: 'o'.repeat(64) },
      message,
      { ...step, sandbox },
      {
        ...finish,
        consumedTo: 1,
        completion,
      },
    );
    expect(head.run).toBeNull();
    expect(Buffer.byteLength(JSON.stringify(head))).toBeLessThanOrEqual(HEAD_MAX_BYTES);
  });

  it('drops a rule only when told to', () => {
    const stale: Command = { ...step, epoch: 1 };
    const lax = { ...ALL_DECIDE_RULES, epochEquality: false, finishNeedsInbox: false };
    expect(isRejected(decide(HEADS.running, stale, TS))).toBe(true);
    expect(isRejected(decide(HEADS.running, stale, TS, lax))).toBe(false);
    expect(isRejected(decide(HEADS['running with a message'], finish, TS, lax))).toBe(false);
  });
});

import type { AnswerCommand, ExpireCommand, QuestionOutcome, RunRequest } from './command';
import { startRun } from './decide-start';
import { isRejected, reject, type Accepted, type DecideRules, type DecidedEvent, type Decision } from './decision';
import { UNANSWERED_MAX, type Head, type HeadQuestion, type HeadRun } from './head';
import type { LogRecord } from './record';
import { privateText, publicText, type SaidText } from './said-text';

export const INTERRUPT_TEXT = '[Interrupted by user]';

/** What the model reads as the result of a question that nobody answered. */
const UNANSWERED_TEXT: Record<Exclude<QuestionOutcome, 'answered'>, string> = {
  declined: 'The user did not answer and wrote a message instead; it follows.',
  interrupted: 'The user interrupted instead of answering.',
  timed_out: 'The user did not answer in time. Go on without the answer, or say what you need.',
  cancelled: 'The run was canceled before the user answered.',
};
/** Whoever declined has had a say: only a question that nobody decided takes a late answer. */
const IS_FINAL: ReadonlySet<QuestionOutcome> = new Set(['answered', 'declined']);

/** The public side of a decision. */
interface Said {
  via?: string;
  answers?: unknown[];
  notes?: string | null;
  delivery: 'run' | 'message' | null;
}

/** A message to the running agent; where it waits for a person, the person has chosen to say something else. */
export function steer(head: Head, run: HeadRun, said: SaidText, rules: DecideRules): Accepted {
  const declined = decideAll(head, run, 'declined');
  const steered = inboxItem(declined.head, run, 'steer', said);
  return wake(together(declined, steered, { session_id: head.sessionId, steered: true }), rules);
}

export function interrupt(head: Head, run: HeadRun, rules: DecideRules): Accepted {
  const closed = decideAll(head, run, 'interrupted');
  const marked = inboxItem(closed.head, run, 'interrupt', { text: INTERRUPT_TEXT });
  return wake(together(closed, marked, { session_id: head.sessionId, interrupted: true }), rules);
}

/** The first answer counts; one that comes when the run has gone on or ended opens a new turn. */
export function answer(head: Head, command: AnswerCommand, ts: number, rules: DecideRules): Decision {
  const { callId, answers, notes, via, text } = command;
  const said = { via, answers, notes };
  const open = head.questions?.find((question) => question.callId === callId);
  if (open && head.run) {
    const decided = decideOne(head, head.run, open, 'answered', { ...said, delivery: 'run' }, text);
    return wake({ ...decided, answer: { session_id: head.sessionId, delivery: 'run' } }, rules);
  }
  const late = head.unanswered?.find((question) => question.callId === callId);
  if (!late) return reject('question_decided', 'The question is already answered, or was declined, or is gone.');
  if (!command.late) return reject('changed', 'The run that asked is over, and no other can be started now.');
  return answerLate({ ...head, ...unansweredWithout(head, callId) }, callId, { ...said, delivery: 'message' }, command.late, ts, rules); // prettier-ignore
}

function answerLate(head: Head, callId: string, said: Said, run: RunRequest, ts: number, rules: DecideRules): Decision {
  const events = [questionEvent(head, callId, 'answered', said)];
  const then = head.run ? steer(head, head.run, run, rules) : startRun(head, run, ts + events.length, rules);
  if (isRejected(then)) return then;
  const runId = then.answer['run_id'] ?? head.run?.id ?? null;
  const told = { session_id: head.sessionId, delivery: 'message', run_id: runId };
  return { ...then, events: [...events, ...then.events], answer: told };
}

export function expire(head: Head, { callId }: ExpireCommand, ts: number, rules: DecideRules): Decision {
  const open = head.questions?.find((question) => question.callId === callId);
  if (!open || !head.run) return reject('question_decided', 'The question is already decided.');
  if (open.expiresTs === null || ts < open.expiresTs) return reject('changed', 'The question may still be answered.');
  return wake(decideOne(head, head.run, open, 'timed_out', { delivery: null }), rules);
}

/** A run that waits goes back to the queue: what it waits for is decided. */
function wake(accepted: Accepted, rules: DecideRules): Accepted {
  const { head } = accepted;
  if (head.run?.state !== 'waiting' || !rules.decisionRequeues) return accepted;
  const { waiting: _, ...run } = head.run;
  return {
    ...accepted,
    head: { ...head, epoch: head.epoch + 1, run: { ...run, state: 'queued', owner: null, isWoken: true } },
  };
}

function inboxItem(head: Head, run: HeadRun, item: 'steer' | 'interrupt', said: SaidText): Accepted {
  const n = head.inboxEnd + 1;
  return {
    head: { ...head, inboxEnd: n, saidEnd: n },
    events: [{ event: { type: 'user_steer', payload: publicText(said) }, runId: run.id }],
    records: [{ kind: 'inbox', n, item, text: privateText(said) } as LogRecord],
    answer: {},
  };
}

/** Ends every open question alike. */
export function decideAll(head: Head, run: HeadRun, outcome: 'declined' | 'interrupted'): Accepted {
  const none: Accepted = { head, events: [], records: [], answer: {} };
  return (head.questions ?? []).reduce(
    (all, question) => together(all, decideOne(all.head, run, question, outcome, { delivery: null }), {}),
    none,
  );
}

function decideOne(
  head: Head,
  run: HeadRun,
  question: HeadQuestion,
  outcome: QuestionOutcome,
  said: Said,
  text = outcome === 'answered' ? '' : UNANSWERED_TEXT[outcome],
): Accepted {
  const n = head.inboxEnd + 1;
  const { callId } = question;
  return {
    head: { ...withoutQuestions(head, [question], outcome), inboxEnd: n },
    events: [{ ...questionEvent(head, callId, outcome, said), runId: run.id }],
    records: [{ kind: 'inbox', n, item: 'answer', callId, outcome, text }],
    answer: {},
  };
}

/** The run ends: whoever is still asked learns that nobody waits for the answer. */
export function cancelQuestions(head: Head): { head: Head; events: DecidedEvent[] } {
  const open = head.questions ?? [];
  return {
    head: withoutQuestions(head, open, 'cancelled'),
    events: open.map(({ callId }) => questionEvent(head, callId, 'cancelled', { delivery: null })),
  };
}

function withoutQuestions(head: Head, decided: readonly HeadQuestion[], outcome: QuestionOutcome): Head {
  if (decided.length === 0) return head;
  const { questions = [], unanswered = [], ...rest } = head;
  const open = questions.filter((question) => !decided.includes(question));
  const late = IS_FINAL.has(outcome) ? unanswered : [...unanswered, ...decided].slice(-UNANSWERED_MAX);
  return {
    ...rest,
    ...(open.length === 0 ? {} : { questions: open }),
    ...(late.length === 0 ? {} : { unanswered: late }),
  };
}

function unansweredWithout(head: Head, callId: string): Pick<Head, 'unanswered'> {
  return { unanswered: head.unanswered?.filter((question) => question.callId !== callId) ?? [] };
}

function questionEvent(head: Head, callId: string, outcome: QuestionOutcome, said: Said): DecidedEvent {
  const payload = {
    call_id: callId,
    outcome,
    answered_via: said.via ?? null,
    answers: said.answers ?? null,
    notes: said.notes ?? null,
    delivery: said.delivery,
  };
  return { event: { type: 'user_question_answered', payload }, runId: head.run?.id ?? null };
}

function together(first: Accepted, second: Accepted, answer: Accepted['answer']): Accepted {
  return {
    head: second.head,
    events: [...first.events, ...second.events],
    records: [...first.records, ...second.records],
    answer,
  };
}

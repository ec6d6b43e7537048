import type {
  ClaimCommand,
  Completion,
  FinishCommand,
  LeaveCause,
  ParkCommand,
  ReleaseCommand,
  Rejection,
  StepCommand,
  TakeoverCommand,
} from './command';
import { cancelQuestions, decideAll } from './decide-inbox';
import { reject, type Accepted, type DecideRules, type Decision } from './decision';
import { CALL_ID_MAX_CHARS, OPEN_QUESTIONS_MAX, type Head, type HeadQuestion, type HeadRun } from './head';
import { afterLeaving } from './losses';
import type { LogRecord } from './record';
import { privateText, publicText, type SaidText } from './said-text';
import { traceOf } from './trace';

/** Longer words of a completion are cut in the head; its event has them whole. */
const LAST_RUN_WORD_CHARS = 60;
const LAST_RUN_REASON_CHARS = 200;
const LAST_RUN_MODELS = 8;

export function claim(head: Head, command: ClaimCommand): Decision {
  const { run } = head;
  if (!run || run.id !== command.runId || run.state !== 'queued' || head.epoch !== command.epoch)
    return reject('lost', `run ${command.runId} is not queued at epoch ${command.epoch} any more`);
  const epoch = head.epoch + 1;
  return {
    head: { ...head, epoch, run: { ...withoutProgress(run), state: 'running', owner: command.owner } },
    events: [],
    records: [],
    answer: { run_id: run.id, epoch },
  };
}

function withoutProgress({ hasProgress: _, ...run }: HeadRun): HeadRun {
  return run;
}

export function takeover(head: Head, command: TakeoverCommand, ts: number, rules: DecideRules): Decision {
  const { run } = head;
  if (!run || run.id !== command.runId || run.state !== 'running' || head.epoch !== command.epoch)
    return reject('lost', `run ${command.runId} is not running at epoch ${command.epoch} any more`);
  return leave(head, run, command.cause, ts, rules);
}

/** The runner gives the run back: to the queue, or to wait for somebody. */
export function release(head: Head, run: HeadRun, command: ReleaseCommand, ts: number, rules: DecideRules): Decision {
  if (command.cause !== 'waiting') return leave(head, run, command.cause, ts, rules);
  const { waiting } = command;
  if (!waiting || waiting.for.length === 0) return reject('invalid', 'a release to wait must name what it waits for');
  const open = new Set(head.questions?.map(({ callId }) => callId));
  const isChanged = head.inboxEnd !== waiting.inboxEnd || waiting.for.some((id) => !open.has(id));
  if (isChanged && rules.waitingNeedsOpen) return reject('changed', 'what the run wanted to wait for is decided');
  const waits = { kind: 'question' as const, for: [...new Set(waiting.for)], since: ts };
  return {
    head: {
      ...head,
      epoch: head.epoch + 1,
      run: { ...withoutProgress(run), state: 'waiting', owner: null, waiting: waits },
    },
    events: [],
    records: [],
    answer: { run_id: run.id, epoch: head.epoch + 1 },
  };
}

/** The run has no owner any more: it goes back to the queue, or is given up where it killed too many. */
function leave(head: Head, run: HeadRun, cause: LeaveCause, ts: number, rules: DecideRules): Accepted {
  const left = afterLeaving(run, cause, ts);
  const epoch = head.epoch + 1;
  if (left.parks && rules.poisonParks) {
    const error = `poison: the run ended ${left.run.losses?.suspicious ?? 1} of its runners, the last one in a process of its own`;
    const completion = { done: true, done_reason: 'error', task_result: null, error, last_error: error, failure_reason: 'poison' }; // prettier-ignore
    const parked = endRun(head, run, { text: `(Run interrupted by error: ${error})` }, completion);
    return { ...parked, answer: { run_id: run.id, epoch } };
  }
  return {
    head: { ...head, epoch, run: { ...left.run, state: 'queued', owner: null } },
    events: [],
    records: [],
    answer: { run_id: run.id, epoch },
  };
}

/** The run ends as it stands; a person may retry it or go on. */
export function park(head: Head, { runId, reason }: ParkCommand): Decision {
  const { run } = head;
  if (run?.id !== runId) return reject('lost', `run ${runId} is over already`);
  const error = `${reason}: the store was restored from a backup; what the run did since then is not known here`;
  const completion = { done: true, done_reason: 'error', task_result: null, error, last_error: error, failure_reason: reason }; // prettier-ignore
  const parked = endRun(head, run, { text: `(Run interrupted by error: ${error})` }, completion);
  return { ...parked, answer: { run_id: run.id } };
}

type OwnedCommand = ReleaseCommand | StepCommand | FinishCommand;

export function ownRun(
  head: Head,
  command: OwnedCommand,
  rules: DecideRules,
  then: (run: HeadRun) => Decision,
): Decision {
  const { run } = head;
  const isSameEpoch = head.epoch === command.epoch || !rules.epochEquality;
  if (!run || run.id !== command.runId || run.state !== 'running' || !isSameEpoch)
    return reject('fenced', `run ${command.runId} is not driven at epoch ${command.epoch} any more`);
  return then(run);
}

/** The run with its inbox consumed up to what the command says, or why that is impossible. */
function consume(head: Head, run: HeadRun, to: number | undefined): HeadRun | { reject: Rejection } {
  if (to === undefined) return run;
  if (to < run.consumedTo || to > head.inboxEnd)
    return reject('invalid', `consumedTo ${to} lies outside ${run.consumedTo}..${head.inboxEnd}`);
  return { ...run, consumedTo: to };
}

function consumedRecord(run: HeadRun, to: number | undefined): LogRecord[] {
  return to === undefined || to === run.consumedTo ? [] : [{ kind: 'consumed', to }];
}

export function step(head: Head, run: HeadRun, command: StepCommand, ts: number): Decision {
  const consumed = consume(head, run, command.consumedTo);
  if ('reject' in consumed) return consumed;
  const asked = askedQuestions(head, command, ts);
  if ('reject' in asked) return asked;
  const sandbox = command.sandbox ?? head.sandbox;
  const questions = [...(head.questions ?? []), ...asked];
  const accepted: Accepted = {
    head: {
      ...head,
      run: { ...consumed, hasProgress: true },
      sandbox,
      ...(asked.length === 0 ? {} : { questions }),
    },
    events: command.events.map((event) => ({ event, runId: run.id })),
    records: [
      ...command.records,
      ...consumedRecord(run, command.consumedTo),
      ...(command.sandbox ? [{ kind: 'sandbox' as const, incarnation: command.sandbox.incarnation }] : []),
      ...asked.map(({ callId }) => ({ kind: 'question' as const, callId })),
    ],
    answer: {},
  };
  // Who has said something that the model does not know yet is not kept waiting for an answer.
  const isToldAlready = asked.length > 0 && (head.saidEnd ?? 0) > consumed.consumedTo;
  return isToldAlready ? declined(accepted, consumed) : accepted;
}

function declined(accepted: Accepted, run: HeadRun): Accepted {
  const decided = decideAll(accepted.head, run, 'declined');
  return {
    ...accepted,
    head: decided.head,
    events: [...accepted.events, ...decided.events],
    records: [...accepted.records, ...decided.records],
  };
}

/** The questions that a step opens, each found by the time of its event. */
function askedQuestions(head: Head, command: StepCommand, ts: number): HeadQuestion[] | { reject: Rejection } {
  const asked: HeadQuestion[] = [];
  for (const { callId, timeoutSeconds } of command.questions ?? []) {
    const index = command.events.findIndex(({ type, payload }) => type === 'user_question' && payload['call_id'] === callId); // prettier-ignore
    const known = [...(head.questions ?? []), ...(head.unanswered ?? []), ...asked];
    if (index === -1 || known.some((question) => question.callId === callId))
      return reject('invalid', `question ${callId} has no event, or was asked already`);
    if (callId.length > CALL_ID_MAX_CHARS)
      return reject('invalid', `the id of a question has at most ${CALL_ID_MAX_CHARS} characters`);
    const at = ts + index;
    asked.push({ callId, ts: at, expiresTs: timeoutSeconds === null ? null : at + timeoutSeconds * 1_000_000 });
  }
  if (asked.length + (head.questions?.length ?? 0) > OPEN_QUESTIONS_MAX)
    return reject('invalid', `at most ${OPEN_QUESTIONS_MAX} questions may be open`);
  return asked;
}

export function finish(head: Head, run: HeadRun, command: FinishCommand, rules: DecideRules): Decision {
  const consumed = consume(head, run, command.consumedTo);
  if ('reject' in consumed) return consumed;
  if (consumed.consumedTo < head.inboxEnd && rules.finishNeedsInbox)
    return reject('inbox', `inbox items ${consumed.consumedTo + 1}..${head.inboxEnd} have not reached the model`);
  const ended = endRun(head, run, command, command.completion);
  return {
    ...ended,
    events: [...command.events.map((event) => ({ event, runId: run.id })), ...ended.events],
    records: [...command.records, ...consumedRecord(run, command.consumedTo), ...ended.records],
  };
}

/** The closing events of a run and a head without it. */
export function endRun(head: Head, run: HeadRun, said: SaidText, completion: Completion): Accepted {
  const { head: closed, events: asked } = cancelQuestions(head);
  return {
    head: {
      ...closed,
      run: null,
      epoch: head.epoch + 1,
      sandbox: null,
      lastRun: {
        id: run.id,
        acceptedTs: run.acceptedTs,
        done: completion.done,
        doneReason: completion.done_reason.slice(0, LAST_RUN_WORD_CHARS),
        ...(completion.blocked_code ? { blockedCode: completion.blocked_code.slice(0, LAST_RUN_WORD_CHARS) } : {}),
        ...(completion.verified === undefined ? {} : { verified: completion.verified }),
        ...(completion.failure_reason
          ? { failureReason: completion.failure_reason.slice(0, LAST_RUN_REASON_CHARS) }
          : {}),
        ...(completion.models_tried ? { modelsTried: shortNames(completion.models_tried) } : {}),
      },
    },
    events: [
      ...asked,
      { event: { type: 'assistant', payload: publicText(said) }, runId: run.id },
      { event: { type: 'completion', payload: { ...completion, ...traceOf(run) } }, runId: run.id },
    ],
    records: [{ kind: 'end', runId: run.id, doneReason: completion.done_reason, text: privateText(said) }],
    answer: {},
  };
}

function shortNames(models: string[]): string[] {
  return models.slice(0, LAST_RUN_MODELS).map((model) => model.slice(0, LAST_RUN_WORD_CHARS));
}

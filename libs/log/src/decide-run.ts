import type {
  ClaimCommand,
  Completion,
  FinishCommand,
  ReleaseCommand,
  Rejection,
  StepCommand,
  TakeoverCommand,
} from './command';
import { reject, type Accepted, type DecideRules, type Decision } from './decision';
import type { Head, HeadRun } from './head';
import type { LogRecord } from './record';
import { privateText, publicText, type SaidText } from './said-text';

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
    head: { ...head, epoch, run: { ...run, state: 'running', owner: command.owner } },
    events: [],
    records: [],
    answer: { run_id: run.id, epoch },
  };
}

export function takeover(head: Head, command: TakeoverCommand): Decision {
  const { run } = head;
  if (!run || run.id !== command.runId || run.state !== 'running' || head.epoch !== command.epoch)
    return reject('lost', `run ${command.runId} is not running at epoch ${command.epoch} any more`);
  return requeue(head, run);
}

export function requeue(head: Head, run: HeadRun): Accepted {
  const epoch = head.epoch + 1;
  return {
    head: { ...head, epoch, run: { ...run, state: 'queued', owner: null } },
    events: [],
    records: [],
    answer: { run_id: run.id, epoch },
  };
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

export function step(head: Head, run: HeadRun, command: StepCommand): Decision {
  const consumed = consume(head, run, command.consumedTo);
  if ('reject' in consumed) return consumed;
  const sandbox = command.sandbox ?? head.sandbox;
  return {
    head: { ...head, run: consumed, sandbox },
    events: command.events.map((event) => ({ event, runId: run.id })),
    records: [
      ...command.records,
      ...consumedRecord(run, command.consumedTo),
      ...(command.sandbox ? [{ kind: 'sandbox' as const, incarnation: command.sandbox.incarnation }] : []),
    ],
    answer: {},
  };
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
  return {
    head: {
      ...head,
      run: null,
      epoch: head.epoch + 1,
      sandbox: null,
      lastRun: {
        id: run.id,
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

/** Id of the run's trace, for people who look for it. */
export function traceOf({ traceparent }: HeadRun): { trace_id?: string } {
  const traceId = traceparent?.split('-')[1];
  return traceId === undefined ? {} : { trace_id: traceId };
}

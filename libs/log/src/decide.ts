import { isoMicros } from '@margay/contracts';
import type {
  AcceptCommand,
  CancelCommand,
  Command,
  CreateCommand,
  InterruptCommand,
  TerminateCommand,
} from './command';
import { bind } from './decide-bind';
import { answer, expire, interrupt, steer } from './decide-inbox';
import { recover } from './decide-recover';
import { claim, endRun, finish, ownRun, park, release, step, takeover } from './decide-run';
import { startRun } from './decide-start';
import { ALL_DECIDE_RULES, isRejected, reject, type Accepted, type DecideRules, type Decision } from './decision';
import { HEAD_MAX_BYTES, type Head, type HeadRun } from './head';

/** What a run may still add to a head: its owner, its sandbox, how it ended. That is never refused for its size. */
const HEAD_RESERVE_BYTES = 2 * 1024;

/**
 * What a command does to a session. Pure: the same head, command and time give the same decision on every replica.
 * @param ts time that the first event of this command will carry, microseconds
 */
export function decide(head: Head, command: Command, ts: number, rules: DecideRules = ALL_DECIDE_RULES): Decision {
  const decision = decideKind(head, command, ts, rules);
  if (isRejected(decision)) return decision;
  const most = HEAD_MAX_BYTES - HEAD_RESERVE_BYTES;
  const bytes = mayGrow(head, decision.head) ? bytesOf({ ...decision.head, unanswered: [] }) : 0;
  if (bytes > most)
    return reject('head_too_large', `the session's context would grow to ${bytes} bytes; at most ${most} fit`);
  const fitted = withinLimit(decision.head);
  return fitted === decision.head ? decision : { ...decision, head: fitted };
}

/** Whether the command brought what people chose: only that may be refused for its size, else runs and sessions get stuck. */
function mayGrow(before: Head, after: Head): boolean {
  const isChosen = before.c === 0 || before.runNo !== after.runNo || before.binding !== after.binding;
  return isChosen && chosenBytes(after) > chosenBytes(before);
}

/** Forgets the oldest questions that nobody answered where there is no room for them. */
function withinLimit(head: Head): Head {
  const { unanswered = [] } = head;
  if (unanswered.length === 0 || bytesOf(head) <= HEAD_MAX_BYTES) return head;
  return withinLimit({ ...head, unanswered: unanswered.slice(1) });
}

const bytesOf = (value: object): number => Buffer.byteLength(JSON.stringify(value));

const chosenBytes = ({ tag, title, context, binding, cuts, run, formerProjects }: Head): number =>
  bytesOf({ tag, title, context, binding, cuts, left: run?.binding, formerProjects });

function decideKind(head: Head, command: Command, ts: number, rules: DecideRules): Decision {
  if (command.kind === 'create') return create(head, command, ts);
  if (head.c === 0) return reject('session_not_found', `session ${head.sessionId} not found`);
  if (head.terminated && rules.terminationIsFinal) return terminated(command);
  switch (command.kind) {
    case 'accept':
      return accept(head, command, ts, rules);
    case 'message':
      return head.run ? steer(head, head.run, command.run, rules) : startRun(head, command.run, ts, rules);
    case 'interrupt':
      return head.run ? interrupt(head, head.run, rules) : noActiveRun(head, command);
    case 'cancel':
      return cancel(head, command);
    case 'bind':
      return bind(head, command);
    case 'fence':
      return fence(head);
    case 'terminate':
      return terminate(head, command, ts);
    case 'answer':
      return answer(head, command, ts, rules);
    case 'expire':
      return expire(head, command, ts, rules);
    case 'recover':
      return recover(head, command, ts, rules);
    case 'claim':
      return claim(head, command);
    case 'takeover':
      return takeover(head, command, ts, rules);
    case 'park':
      return park(head, command);
    case 'release':
      return ownRun(head, command, rules, (run) => release(head, run, command, ts, rules));
    case 'step':
      return ownRun(head, command, rules, (run) => step(head, run, command, ts));
    case 'finish':
      return ownRun(head, command, rules, (run) => finish(head, run, command, rules));
  }
}

/** Runners of a terminated session are fenced like those of an ended run; everybody else is told that it is over. */
function terminated(command: Command): Decision {
  switch (command.kind) {
    case 'step':
    case 'finish':
    case 'release':
      return reject('fenced', 'the session is terminated');
    case 'claim':
    case 'takeover':
    case 'park':
      return reject('lost', 'the session is terminated');
    default:
      return reject('session_terminated', 'Session is permanently terminated');
  }
}

function create(head: Head, command: CreateCommand, ts: number): Decision {
  if (head.c > 0) return reject('session_exists', `session ${head.sessionId} exists`);
  return {
    head: {
      ...head,
      tenantId: command.tenantId,
      owner: command.owner,
      tag: command.tag,
      createdTs: ts,
      context: command.context,
      binding: command.binding,
    },
    events: [
      { event: { type: 'session', payload: { event: 'created' } }, runId: null },
      { event: { type: 'context', payload: command.context }, runId: null },
    ],
    records: [],
    answer: { session_id: head.sessionId },
  };
}

function accept(head: Head, command: AcceptCommand, ts: number, rules: DecideRules): Decision {
  if (head.run) return reject('session_running', 'Session is already running.');
  return startRun(head, command.run, ts, rules);
}

function fence(head: Head): Decision {
  if (head.run) return reject('session_running', 'Session is already running.');
  return { head: { ...head, epoch: head.epoch + 1 }, events: [], records: [], answer: { session_id: head.sessionId } };
}

function noActiveRun(head: Head, command: InterruptCommand | CancelCommand): Decision {
  return reject('no_active_run', `session ${head.sessionId} has no active run to ${command.kind}`);
}

function cancel(head: Head, command: CancelCommand): Decision {
  if (!head.run) return noActiveRun(head, command);
  return { ...endCanceled(head, head.run), answer: { session_id: head.sessionId, canceled: true } };
}

function endCanceled(head: Head, run: HeadRun): Accepted {
  const unread = head.inboxEnd - run.consumedTo;
  return endRun(
    head,
    run,
    { text: '(Run canceled by user)' },
    {
      done: true,
      done_reason: 'canceled',
      task_result: null,
      ...(unread > 0 ? { last_error: `${unread} message(s) stayed unread` } : {}),
    },
  );
}

function terminate(head: Head, command: TerminateCommand, ts: number): Decision {
  const ended = head.run ? endCanceled(head, head.run) : { head, events: [], records: [] };
  const at = ts + ended.events.length;
  const terminatedAt = isoMicros(at);
  const payload = { terminated_at: terminatedAt, cancelled_triggers: command.cancelledTriggers };
  return {
    head: {
      ...ended.head,
      epoch: ended.head.epoch + 1,
      terminated: { ts: at, cancelledTriggers: command.cancelledTriggers },
    },
    events: [...ended.events, { event: { type: 'session_terminated', payload }, runId: null }],
    records: ended.records,
    answer: { session_id: head.sessionId, ...payload },
  };
}

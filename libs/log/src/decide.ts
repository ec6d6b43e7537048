import { isoMicros, type EventInput } from '@margay/contracts';
import type {
  AcceptCommand,
  CancelCommand,
  Command,
  CreateCommand,
  InterruptCommand,
  MessageCommand,
  RunRequest,
  TerminateCommand,
} from './command';
import { claim, endRun, finish, ownRun, requeue, step, takeover, traceOf } from './decide-run';
import { privateText, publicText, type SaidText } from './said-text';
import { ALL_DECIDE_RULES, isRejected, reject, type Accepted, type DecideRules, type Decision } from './decision';
import type { Answer } from './document';
import { HEAD_MAX_BYTES, type Head, type HeadRun } from './head';

const TITLE_MAX_CHARS = 120;
/** What a run may still add to a head: its owner, its sandbox, how it ended. That is never refused for its size. */
const HEAD_RESERVE_BYTES = 2 * 1024;
export const INTERRUPT_TEXT = '[Interrupted by user]';

/**
 * What a command does to a session. Pure: the same head, command and time give the same decision on every replica.
 * @param ts time that the first event of this command will carry, microseconds
 */
export function decide(head: Head, command: Command, ts: number, rules: DecideRules = ALL_DECIDE_RULES): Decision {
  const decision = decideKind(head, command, ts, rules);
  if (isRejected(decision) || !mayGrow(head, decision.head)) return decision;
  const bytes = Buffer.byteLength(JSON.stringify(decision.head));
  const most = HEAD_MAX_BYTES - HEAD_RESERVE_BYTES;
  if (bytes > most)
    return reject('head_too_large', `the session's context would grow to ${bytes} bytes; at most ${most} fit`);
  return decision;
}

/** Whether the command brought what people chose: only then it may be refused for the head's size, else runs get stuck. */
function mayGrow(before: Head, after: Head): boolean {
  return before.c === 0 || before.runNo !== after.runNo;
}

function decideKind(head: Head, command: Command, ts: number, rules: DecideRules): Decision {
  if (command.kind === 'create') return create(head, command, ts);
  if (head.c === 0) return reject('session_not_found', `session ${head.sessionId} not found`);
  if (head.terminated) return terminated(command);
  switch (command.kind) {
    case 'accept':
      return accept(head, command, ts);
    case 'message':
      return head.run ? steer(head, command) : startRun(head, command.run, ts);
    case 'interrupt':
      return interrupt(head, command);
    case 'cancel':
      return cancel(head, command);
    case 'terminate':
      return terminate(head, command, ts);
    case 'claim':
      return claim(head, command);
    case 'takeover':
      return takeover(head, command);
    case 'release':
      return ownRun(head, command, rules, (run) => requeue(head, run));
    case 'step':
      return ownRun(head, command, rules, (run) => step(head, run, command));
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

function accept(head: Head, command: AcceptCommand, ts: number): Decision {
  if (head.run) return reject('session_running', 'Session is already running.');
  return startRun(head, command.run, ts);
}

function startRun(head: Head, request: RunRequest, ts: number): Decision {
  const no = head.runNo + 1;
  const runId = `${head.sessionId}:r${no}`;
  const context = { ...head.context, ...request.context };
  const unbound = head.binding.project === null && head.binding.cwd === null;
  const run: HeadRun = {
    id: runId,
    no,
    state: 'queued',
    owner: null,
    pool: request.pool,
    acceptedTs: ts,
    principal: request.principal,
    consumedTo: head.inboxEnd,
    ...(request.traceparent === undefined ? {} : { traceparent: request.traceparent }),
  };
  const attachments = request.attachments.length > 0 ? { attachments: request.attachments } : {};
  // The context event comes first, so `run_accepted` is the second of the three.
  const acceptedAt = isoMicros(ts + 1);
  const events: EventInput[] = [
    { type: 'context', payload: request.context },
    {
      type: 'run_accepted',
      payload: {
        session_id: head.sessionId,
        run_id: runId,
        ts: acceptedAt,
        ...(request.isolation === undefined ? {} : { sandbox: request.isolation }),
        ...traceOf(run),
      },
    },
    { type: 'user', payload: { ...publicText(request), ...attachments } },
  ];
  return {
    head: {
      ...head,
      context,
      binding: unbound ? request.binding : head.binding,
      title: head.title ?? titleFrom(request.text),
      runNo: no,
      run,
      epoch: head.epoch + 1,
      sandbox: null,
    },
    events: events.map((event) => ({ event, runId })),
    records: [
      { kind: 'run', runId, options: request.options },
      { kind: 'user', runId, text: privateText(request), attachments: request.attachments },
    ],
    answer: { session_id: head.sessionId, run_id: runId, steered: false },
  };
}

function titleFrom(text: string): string | null {
  const cut = text.trim().slice(0, TITLE_MAX_CHARS);
  // A pair of surrogates may have been cut in two.
  return cut.replace(/[\uD800-\uDBFF]$/, '') || null;
}

function steer(head: Head, command: MessageCommand): Decision {
  return inboxItem(head, 'steer', command.run, { session_id: head.sessionId, steered: true });
}

function interrupt(head: Head, command: InterruptCommand): Decision {
  if (!head.run) return noActiveRun(head, command);
  return inboxItem(head, 'interrupt', { text: INTERRUPT_TEXT }, { session_id: head.sessionId, interrupted: true });
}

function inboxItem(head: Head, item: 'steer' | 'interrupt', said: SaidText, answer: Answer): Decision {
  const n = head.inboxEnd + 1;
  return {
    head: { ...head, inboxEnd: n },
    events: [{ event: { type: 'user_steer', payload: publicText(said) }, runId: head.run?.id ?? null }],
    records: [{ kind: 'inbox', n, item, text: privateText(said) }],
    answer,
  };
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

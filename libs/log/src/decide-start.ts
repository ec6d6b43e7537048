import { isoMicros, type EventInput } from '@margay/contracts';
import type { RunRequest } from './command';
import { reject, type Accepted, type DecideRules, type Decision } from './decision';
import type { Head, HeadRun, LastRun } from './head';
import { privateText, publicText } from './said-text';
import { traceOf } from './trace';

const TITLE_MAX_CHARS = 120;

/** A run is queued: the events that open it, and the head with it. @param ts time of the first of its events */
export function startRun(head: Head, request: RunRequest, ts: number, rules: DecideRules): Decision {
  return isAsSeen(head, request) || !rules.startsAsSeen
    ? started(head, request, ts)
    : reject('changed', 'The session has moved on since the run was looked at: ask again.');
}

function isAsSeen({ binding, epoch }: Head, { seen }: RunRequest): boolean {
  if (!seen) return true;
  const isSameBinding = seen.binding.project === binding.project && seen.binding.cwd === binding.cwd;
  return isSameBinding && (seen.epoch === undefined || seen.epoch === epoch);
}

function started(head: Head, request: RunRequest, ts: number): Accepted {
  const no = head.runNo + 1;
  const runId = `${head.sessionId}:r${no}`;
  const unbound = head.binding.project === null && head.binding.cwd === null;
  const binding = unbound ? request.binding : head.binding;
  const told = toldOf(request.context, binding);
  const context = { ...head.context, ...told };
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
    ...(request.sandboxClass === undefined ? {} : { sandboxClass: request.sandboxClass }),
  };
  const attachments = request.attachments.length > 0 ? { attachments: request.attachments } : {};
  // The context event comes first, so `run_accepted` is the second of the three.
  const acceptedAt = isoMicros(ts + 1);
  const events: EventInput[] = [
    { type: 'context', payload: told },
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
      binding,
      ...(head.title === null ? { title: titleFrom(request.text), titleRunNo: no } : {}),
      runNo: no,
      run,
      lastRun: head.lastRun && briefly(head.lastRun),
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

/** The session may have been bound anew since the request was looked at: a context never names a project it does not have. */
function toldOf(context: RunRequest['context'], { project }: Head['binding']): RunRequest['context'] {
  return context['project'] === undefined || context['project'] === project ? context : { ...context, project };
}

/** How a run ended in detail is shown until the next one starts: heads stay small. */
function briefly({ id, acceptedTs, done, doneReason }: LastRun): LastRun {
  return { id, ...(acceptedTs === undefined ? {} : { acceptedTs }), done, doneReason };
}

function titleFrom(text: string): string | null {
  const cut = text.trim().slice(0, TITLE_MAX_CHARS);
  // A pair of surrogates may have been cut in two.
  return cut.replace(/[\uD800-\uDBFF]$/, '') || null;
}

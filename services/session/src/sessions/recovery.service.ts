import { parseMicros, type Principal, type sessionsPb, type StoredEvent } from '@margay/contracts';
import { InvalidArgumentError } from '@margay/errors';
import {
  canonicalJson,
  inlineBlobs,
  sha256Hex,
  unpackRecord,
  type CommitDocument,
  type Head,
  type RecoverCommand,
} from '@margay/log';
import { requireAccess, requireDriver } from '../access/access-rules';
import { rejectionError, type SessionLog } from '../commits/session-log';
import { readCommitAt } from './read-event';
import { commitIdOf } from './request-ids';
import { ANY_RUN, runRequest, type RunRequestPorts } from './run-request';

export interface RecoveryPorts extends RunRequestPorts {
  log: SessionLog;
}

/** A user event, and what was said with it. */
interface Turn {
  seq: number;
  ts: number;
  runId: string;
  text: string;
  attachments: unknown[];
}

const CONTINUE_TEXT =
  'The run before this one was interrupted. Carry on from where it stopped, without repeating what is done already.';
const SESSION_RUNNING = { reason: 'session_running', message: 'Session is already running.' } as const;
/** A run opens with `context`, `run_accepted`, `user`; its acceptance has the time of the first. */
const USER_EVENT_OFFSET = 2;

/** Runs a turn again, or goes on after an end that was none. */
export class RecoveryService {
  constructor(private readonly ports: RecoveryPorts) {}

  /** @throws InvalidArgumentError `invalid_action`, `nothing_to_recover`; AbortedError `session_running` */
  async recover(
    principal: Principal,
    request: sessionsPb.RecoverSessionRequest,
  ): Promise<sessionsPb.RecoverSessionResponse> {
    const { sessionId, idempotencyKey } = request;
    const action = actionOf(request.action);
    const { log } = this.ports;
    const { head } = await log.confirmedTip(sessionId);
    requireAccess(principal, head);
    requireDriver(principal, 'sessions.interact');
    const commitId = commitIdOf(principal, sessionId, 'recover', idempotencyKey);
    let fault: unknown = rejectionError(SESSION_RUNNING);
    const isBusy = head.run !== null || head.terminated !== null;
    const command = isBusy
      ? undefined
      : await this.command(principal, head, request, action, commitId).catch((error: unknown) => void (fault = error));
    // Also what can't be done is submitted: it may repeat what was done, and the log knows.
    const fitted = command && (await log.fit(sessionId, head.tenantId, command));
    const outcome = await log.submit(sessionId, fitted ?? impossible(commitId, hashOf(request)));
    if (!outcome.ok) {
      const isFault = !fitted && outcome.rejection.reason === 'nothing_to_recover';
      throw isFault ? fault : rejectionError(outcome.rejection);
    }
    return { runId: String(outcome.answer['run_id']), replayed: outcome.replayed && idempotencyKey !== '' };
  }

  private async command(
    principal: Principal,
    head: Head,
    request: sessionsPb.RecoverSessionRequest,
    action: RecoverCommand['action'],
    commitId: string,
  ): Promise<RecoverCommand> {
    const { editedText, model } = request;
    const turn = action === 'retry' ? await this.turnOf(head, request.fromTs) : undefined;
    const text = turn ? editedText || turn.text : editedText || CONTINUE_TEXT;
    if (text.trim() === '') throw new InvalidArgumentError('nothing_to_recover', 'the turn to run again has no text');
    const capabilities = head.context['client_capabilities'];
    const context = {
      ...(capabilities === undefined ? {} : { client_capabilities: capabilities }),
      ...(model === '' ? {} : { model }),
    };
    const run = await runRequest(this.ports, principal, head, {
      text,
      mode: '',
      project: '',
      cwd: '',
      contextJson: JSON.stringify(context),
      attachmentsJson: JSON.stringify(turn?.attachments ?? []),
      capabilities: [],
      hasCapabilities: false,
      surface: '',
    });
    const from = turn && { seq: turn.seq, ts: turn.ts, runId: turn.runId, isLast: request.fromTs === '' };
    return {
      kind: 'recover',
      commitId,
      action,
      ...(from ? { from } : {}),
      run: { ...run, requestHash: hashOf(request) },
    };
  }

  private async turnOf(head: Head, fromTs: string): Promise<Turn> {
    const ts = fromTs === '' ? lastUserTs(head) : parseMicros(fromTs);
    const { store, blobs } = this.ports.log;
    const document = ts === undefined ? undefined : await readCommitAt(store, head.sessionId, ts);
    const found = document?.events.find((event) => event.ts === ts);
    const event = found && (JSON.parse(found.frame) as StoredEvent);
    const isCut = head.cuts.some(([from, to]) => found && from <= found.seq && found.seq <= to);
    if (!document || !found || event?.type !== 'user' || isCut || !event.run_id)
      throw new InvalidArgumentError('nothing_to_recover', fromTs === '' ? 'no user message to run again' : `no user message at ${fromTs}`); // prettier-ignore
    const said = saidIn(document, event.run_id);
    const whole = said && (await inlineBlobs(head.tenantId, said, blobs));
    return {
      seq: found.seq,
      ts: found.ts,
      runId: event.run_id,
      text: typeof whole?.['text'] === 'string' ? whole['text'] : event.payload.text,
      attachments: event.payload.attachments ?? [],
    };
  }
}

/** A command that no head accepts: its answer is that of the one stored under the same id, if there is one. */
function impossible(commitId: string, requestHash: string): RecoverCommand {
  const from = { seq: Number.MAX_SAFE_INTEGER, ts: 0, runId: '' };
  return { kind: 'recover', commitId, action: 'retry', from, run: { ...ANY_RUN, requestHash } };
}

function actionOf(action: string): RecoverCommand['action'] {
  if (action === 'retry' || action === 'continue') return action;
  throw new InvalidArgumentError('invalid_action', "'action' must be 'retry' or 'continue'");
}

function hashOf({ action, fromTs, editedText, model }: sessionsPb.RecoverSessionRequest): string {
  return sha256Hex(canonicalJson({ action, fromTs, editedText, model }));
}

function lastUserTs({ lastRun }: Head): number | undefined {
  return lastRun?.acceptedTs === undefined ? undefined : lastRun.acceptedTs + USER_EVENT_OFFSET;
}

/** The private record of what opened a run: whole, where the event may show a preview. */
function saidIn(document: CommitDocument, runId: string): { kind: string; [field: string]: unknown } | undefined {
  const frames = document.events.map(({ frame }) => frame);
  return document.records
    .map((text) => unpackRecord(text, frames))
    .find((record) => record.kind === 'user' && record['runId'] === runId);
}

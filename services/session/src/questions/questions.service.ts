import { timingSafeEqual } from 'node:crypto';
import type { Principal, sessionsPb } from '@margay/contracts';
import { NotFoundError, PermissionDeniedError } from '@margay/errors';
import { sha256Hex, type Head, type RunRequest } from '@margay/log';
import { requireAccess, requireDriver } from '../access/access-rules';
import { rejectionError, type SessionLog } from '../commits/session-log';
import { readEvent } from '../sessions/read-event';
import { commitIdOf } from '../sessions/request-ids';
import { runRequest, type RunRequestPorts } from '../sessions/run-request';
import { checkAnswers, type ShownQuestion } from './answers';
import type { QuestionRepository } from './question.repository';

export interface QuestionsPorts extends RunRequestPorts {
  log: SessionLog;
  questions: QuestionRepository;
}

interface AskedEvent {
  call_id: string;
  call_token: string;
  questions: ShownQuestion[];
}

/** Answers of people to the questions of runs. */
export class QuestionsService {
  constructor(private readonly ports: QuestionsPorts) {}

  /**
   * The first answer counts; one that comes when the run that asked has gone on opens a new turn.
   * @throws NotFoundError `question_not_found`; PermissionDeniedError `wrong_call_token`; what `checkAnswers` throws;
   *   AbortedError `question_decided`; 410 of a terminated session
   */
  async answer(
    principal: Principal,
    request: sessionsPb.AnswerQuestionRequest,
  ): Promise<sessionsPb.AnswerQuestionResponse> {
    const { sessionId, callId, answersJson, notes, answeredVia, idempotencyKey } = request;
    const { log } = this.ports;
    const { head } = await log.confirmedTip(sessionId);
    requireAccess(principal, head);
    requireDriver(principal, 'sessions.interact');
    if (head.terminated) throw rejectionError({ reason: 'session_terminated', message: 'Session is permanently terminated' }); // prettier-ignore
    const asked = await this.askedQuestion(head, callId);
    requireToken(asked, request.callToken);
    const { answers, notes: given, text, lateText } = checkAnswers(asked.questions, answersJson, notes);
    const late = await this.lateRun(principal, head, lateText);
    const commitId = commitIdOf(principal, sessionId, `answer ${callId}`, idempotencyKey);
    const outcome = await log.commit(sessionId, {
      kind: 'answer',
      commitId,
      callId,
      answers,
      notes: given,
      via: answeredVia,
      text,
      ...(late === undefined ? {} : { late }),
    });
    return { delivery: String(outcome.answer['delivery']), replayed: outcome.replayed && idempotencyKey !== '' };
  }

  private async askedQuestion(head: Head, callId: string): Promise<AskedEvent> {
    const known = [...(head.questions ?? []), ...(head.unanswered ?? [])].find((each) => each.callId === callId);
    const ts = known?.ts ?? (await this.ports.questions.find(head.sessionId, callId))?.ts;
    const event = ts === undefined ? undefined : await readEvent(this.ports.log.store, head.sessionId, ts);
    if (event?.type !== 'user_question') throw new NotFoundError('question_not_found', `question ${callId} not found`);
    return event.payload as unknown as AskedEvent;
  }

  /** Undefined where no run can be started now: an answer to a run that waits needs none. */
  private lateRun(principal: Principal, head: Head, text: string): Promise<RunRequest | undefined> {
    const wanted = { text, mode: '', project: '', cwd: '', contextJson: '', attachmentsJson: '' };
    const asIs = { capabilities: [], hasCapabilities: false, surface: '' };
    return runRequest(this.ports, principal, head, { ...wanted, ...asIs }).catch(() => undefined);
  }
}

function requireToken({ call_id: callId, call_token: token }: AskedEvent, given: string): void {
  const [right, shown] = [token, given].map((text) => Buffer.from(sha256Hex(text), 'hex'));
  if (right && shown && timingSafeEqual(right, shown)) return;
  throw new PermissionDeniedError('wrong_call_token', `the call_token is not that of question ${callId}`);
}

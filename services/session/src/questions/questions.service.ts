import { timingSafeEqual } from 'node:crypto';
import type { Principal, sessionsPb } from '@margay/contracts';
import { NotFoundError, PermissionDeniedError } from '@margay/errors';
import { sha256Hex, type Head, type RunRequest } from '@margay/log';
import { requireAccess, requireDriver } from '../access/access-rules';
import { rejectionError, type SessionLog } from '../commits/session-log';
import { readEvent } from '../sessions/read-event';
import { commitIdOf } from '../sessions/request-ids';
import { runRequest, type RunRequestPorts } from '../sessions/run-request';
import { checkAnswers, type GivenAnswer, type ShownQuestion } from './answers';
import type { QuestionRepository } from './question.repository';

const TERMINATED = { reason: 'session_terminated', message: 'Session is permanently terminated' } as const;

export interface QuestionsPorts extends RunRequestPorts {
  log: SessionLog;
  questions: Pick<QuestionRepository, 'find'>;
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
    const { sessionId, callId, answeredVia, idempotencyKey } = request;
    const { log } = this.ports;
    const { head } = await log.confirmedTip(sessionId);
    requireAccess(principal, head);
    requireDriver(principal, 'sessions.interact');
    // Of a terminated session that is what is said, unless this repeats what was done before.
    if (head.terminated && idempotencyKey === '') throw rejectionError(TERMINATED);
    const given = await this.given(head, request).catch((error: unknown) => {
      throw head.terminated ? rejectionError(TERMINATED) : error;
    });
    const { answers, notes, text, lateText } = given;
    const late = await this.lateRun(principal, head, lateText);
    const commitId = commitIdOf(principal, sessionId, `answer ${callId}`, idempotencyKey);
    const said = { callId, answers, notes, via: answeredVia, text };
    const run = 'run' in late ? { late: late.run } : {};
    const outcome = await log.submit(sessionId, { kind: 'answer', commitId, ...said, ...run });
    if (!outcome.ok) throw outcome.rejection.reason === 'changed' && 'refusal' in late ? late.refusal : rejectionError(outcome.rejection); // prettier-ignore
    return { delivery: String(outcome.answer['delivery']), replayed: outcome.replayed && idempotencyKey !== '' };
  }

  private async given(
    head: Head,
    { callId, callToken, answersJson, notes }: sessionsPb.AnswerQuestionRequest,
  ): Promise<GivenAnswer> {
    const asked = await this.askedQuestion(head, callId);
    requireToken(asked, callToken);
    return checkAnswers(asked.questions, answersJson, notes);
  }

  private async askedQuestion(head: Head, callId: string): Promise<AskedEvent> {
    const known = [...(head.questions ?? []), ...(head.unanswered ?? [])].find((each) => each.callId === callId);
    const ts = known?.ts ?? (await this.ports.questions.find(head.sessionId, callId))?.ts;
    const event = ts === undefined ? undefined : await readEvent(this.ports.log.store, head.sessionId, ts);
    if (event?.type !== 'user_question') throw new NotFoundError('question_not_found', `question ${callId} not found`);
    return event.payload as unknown as AskedEvent;
  }

  /** The turn that a late answer opens, or why none can be opened now: an answer to a run that waits needs none. */
  private lateRun(principal: Principal, head: Head, text: string): Promise<{ run: RunRequest } | { refusal: unknown }> {
    const wanted = { text, mode: '', project: '', cwd: '', contextJson: '', attachmentsJson: '' };
    const asIs = { capabilities: [], hasCapabilities: false, surface: '' };
    return runRequest(this.ports, principal, head, { ...wanted, ...asIs }).then(
      (run) => ({ run }),
      (refusal: unknown) => ({ refusal }),
    );
  }
}

function requireToken({ call_id: callId, call_token: token }: AskedEvent, given: string): void {
  const [right, shown] = [token, given].map((text) => Buffer.from(sha256Hex(text), 'hex'));
  if (right && shown && timingSafeEqual(right, shown)) return;
  throw new PermissionDeniedError('wrong_call_token', `the call_token is not that of question ${callId}`);
}

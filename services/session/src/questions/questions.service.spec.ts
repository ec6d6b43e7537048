import type { sessionsPb } from '@margay/contracts';
import { acceptCommand, createCommand } from '@margay/testing';
import { MemorySession } from '../spec/memory-session';
import { QuestionsService } from './questions.service';

const TOKEN = 'token';
const CALL = `${'a'.repeat(32)}.2.1.0`;
const QUESTIONS = [{ header: 'Colour', question: 'Which?', options: [], multi_select: false }];
const cancel = { kind: 'cancel' as const, commitId: 'cancel' };

let session: MemorySession;
let noted: number | undefined;

beforeEach(async () => {
  session = new MemorySession();
  await session.submit(createCommand());
  await session.submit(acceptCommand('paint it', { context: {} }));
  const run = await session.claim();
  const payload = { call_id: CALL, call_token: TOKEN, questions: QUESTIONS, timeout_seconds: null, notes_placeholder: null }; // prettier-ignore
  const questions = [{ callId: CALL, timeoutSeconds: null }];
  const head = await session.submit({ kind: 'step', commitId: 'ask', ...run, events: [{ type: 'user_question', payload }], records: [], questions }); // prettier-ignore
  noted = head.questions?.[0]?.ts;
});

function answer(fields: Partial<sessionsPb.AnswerQuestionRequest> = {}): Promise<sessionsPb.AnswerQuestionResponse> {
  const row = noted === undefined ? undefined : { _id: CALL, tenantId: 'tenant', sessionId: session.id, ts: noted };
  const questions = { find: () => Promise.resolve(row) };
  const said = { callToken: TOKEN, answersJson: '[{"text":"blue"}]', notes: '', answeredVia: 'rest' };
  const request = { sessionId: session.id, callId: CALL, ...said, idempotencyKey: '', ...fields };
  return new QuestionsService({ ...session.runPorts, log: session.log, questions }).answer(session.owner, request);
}

const refusal = (fields: Partial<sessionsPb.AnswerQuestionRequest> = {}): Promise<unknown> =>
  answer(fields).then(
    () => 'taken',
    (error: unknown) => (error as { reason: string }).reason,
  );

it('takes an answer to a run that waits though no other run could be started', async () => {
  session.model = undefined;
  expect(await answer()).toEqual({ delivery: 'run', replayed: false });
});

it('says why a late answer can open no turn, and takes it later', async () => {
  await session.submit(cancel);
  session.model = undefined;
  await expect(answer()).rejects.toMatchObject({ code: 'UNAVAILABLE', reason: 'models_not_ready' });
  session.model = 'model';
  expect(await answer()).toMatchObject({ delivery: 'message' });
  expect(await session.events('user')).toHaveLength(2);
});

it('repeats what it said under one key: while the run goes on, when it has ended, and after the session is over', async () => {
  const idempotencyKey = 'key';
  await answer({ idempotencyKey });
  const again = { delivery: 'run', replayed: true };
  expect(await answer({ idempotencyKey })).toEqual(again);
  await session.submit(cancel);
  expect(await answer({ idempotencyKey })).toEqual(again);
  expect(await refusal({ idempotencyKey, answersJson: '[{"text":"red"}]' })).toBe('idempotency_key_reused');
  await session.submit({ kind: 'terminate', commitId: 'x', cancelledTriggers: 0 });
  expect(await answer({ idempotencyKey })).toEqual(again);
  expect(await refusal({ idempotencyKey: 'other' })).toBe('session_terminated');
  expect(await session.events('user_question_answered')).toHaveLength(1);
});

it('says first of a terminated session that it is over', async () => {
  await session.submit({ kind: 'terminate', commitId: 'x', cancelledTriggers: 0 });
  for (const idempotencyKey of ['', 'key']) {
    expect(await refusal({ idempotencyKey })).toBe('session_terminated');
    expect(await refusal({ idempotencyKey, callToken: 'guessed' })).toBe('session_terminated');
    expect(await refusal({ idempotencyKey, answersJson: '7' })).toBe('session_terminated');
  }
});

it('is asked again under the same key after a refusal, which nothing remembers', async () => {
  expect(await refusal({ idempotencyKey: 'key', answersJson: '[]' })).toBe('validation');
  expect(await refusal({ idempotencyKey: 'key' })).toBe('taken');
});

it('takes no answer to a question of a turn that was run again', async () => {
  const [user] = await session.events('user');
  await session.submit(cancel);
  const from = { seq: user?.seq ?? 0, ts: (noted ?? 0) - 1, runId: `${session.id}:r1` };
  await session.submit({ kind: 'recover', commitId: 'r', action: 'retry', from, run: acceptCommand('again').run });
  expect(await refusal({ callToken: 'guessed' })).toBe('wrong_call_token');
  expect(await refusal()).toBe('question_decided');
  expect(await session.events('user_question_answered')).toEqual([]);
});

it('knows no question that nobody noted', async () => {
  await answer();
  noted = undefined;
  expect(await refusal()).toBe('question_not_found');
});

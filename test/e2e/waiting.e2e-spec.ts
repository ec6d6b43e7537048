import { setTimeout as delay } from 'node:timers/promises';
import { answer, byConversation, callTools, type ScriptedToolCall } from '@margay/testing';
import { PlatformHarness } from './harness';

jest.setTimeout(120_000);

const CAPABILITIES = { 'x-margay-capabilities': 'ask_user' };
const PATIENCE_MS = 60_000;

interface Asked {
  call_id: string;
  call_token: string;
}

interface EventsBody {
  events: { type: string; ts: string; payload: Record<string, unknown> }[];
  running: boolean;
  status: string;
  waiting?: { kind: string; id: string };
}

const colour = (more: Record<string, unknown> = {}): ScriptedToolCall => ({
  name: 'ask_user_question',
  arguments: {
    questions: [{ header: 'Colour', question: 'Which one?', options: [{ label: 'red' }, { label: 'blue' }] }],
    ...more,
  },
});

describe('a run that waits for a person', () => {
  const margay = new PlatformHarness({ mode: 'combined' });

  beforeAll(async () => {
    await margay.start();
  }, 600_000);
  afterAll(() => margay.stop(), 180_000);

  /** Asks, then says what the answer was. @returns id of a session whose run has asked */
  async function ask(more: Record<string, unknown> = {}): Promise<string> {
    margay.script(
      byConversation(({ user, results }) => {
        if (user !== 'paint it') return answer(`told: ${user}`);
        return results.length === 0 ? callTools(colour(more)) : answer(`heard: ${results[0]?.content}`);
      }),
    );
    const { id } = await margay.sessionWith({});
    const accepted = await margay.request('POST', `/api/sessions/${id}/query`, { query: 'paint it' }, CAPABILITIES);
    expect(accepted.status).toBe(202);
    return id;
  }

  const eventsOf = async (id: string): Promise<EventsBody> =>
    (await margay.request('GET', `/api/sessions/${id}/events`)).body as EventsBody;

  async function until(id: string, holds: (body: EventsBody) => boolean): Promise<EventsBody> {
    const endMs = performance.now() + PATIENCE_MS;
    for (;;) {
      const body = await eventsOf(id);
      if (holds(body)) return body;
      if (performance.now() > endMs) throw new Error(`it never came to hold: ${JSON.stringify(body).slice(-600)}`);
      await delay(50);
    }
  }

  const typesIn = ({ events }: EventsBody): string[] => events.map(({ type }) => type);
  const payloadOf = ({ events }: EventsBody, type: string): Record<string, unknown> =>
    events.findLast((event) => event.type === type)?.payload ?? {};

  async function asked(id: string): Promise<Asked> {
    return payloadOf(await until(id, (body) => typesIn(body).includes('user_question')), 'user_question') as never;
  }

  async function given(id: string, { call_id, call_token }: Asked, body: Record<string, unknown> = {}) {
    const path = `/api/sessions/${id}/questions/${call_id}/answer`;
    return margay.request('POST', path, { call_token, answers: [{ selected_indexes: [1] }], ...body });
  }

  /** The runner holds the run no more. */
  async function givenBack(): Promise<void> {
    const endMs = performance.now() + PATIENCE_MS;
    for (;;) {
      const demand = await fetch(`${margay.platform.managementUrl('control')}/internal/demand/${margay.database}`);
      const { running, queued } = (await demand.json()) as { running: number; queued: number };
      if (running + queued === 0) return;
      if (performance.now() > endMs) throw new Error('the run still holds a runner');
      await delay(100);
    }
  }

  it('holds no runner, outlives every process, and goes on with the answer', async () => {
    const id = await ask();
    const question = await asked(id);
    await givenBack();
    expect(await eventsOf(id)).toMatchObject({ running: true, status: 'running', waiting: { kind: 'question', id: question.call_id } }); // prettier-ignore
    await Promise.all(margay.platform.processes.map((process) => process.kill('SIGKILL')));
    for (const { name } of margay.platform.processes) await margay.platform.restart(name);
    const busy = await margay.request('POST', `/api/sessions/${id}/query`, { query: 'another' });
    expect(busy.status).toBe(409);
    expect(await given(id, question)).toMatchObject({ status: 200, body: { resolved: true, delivery: 'run' } });
    const frames = await margay.frames(id);
    expect(frames.at(-1)?.event.type).toBe('stream_end');
    const ended = await eventsOf(id);
    expect(payloadOf(ended, 'assistant')['text']).toBe('heard: The user answered:\nColour: blue');
    expect(typesIn(ended).filter((type) => type === 'user_question' || type === 'completion')).toHaveLength(2);
    expect(ended.waiting).toBeUndefined();
  });

  it('takes one answer, checks it, and tells what is wrong with others', async () => {
    const id = await ask();
    const question = await asked(id);
    const wrong = { ...question, call_token: 'guessed' };
    expect((await given(id, wrong)).status).toBe(403);
    expect((await given(id, { ...question, call_id: `${id}.9.9.9` })).status).toBe(404);
    expect((await given(id, question, { answers: 'blue' })).status).toBe(400);
    expect((await given(id, question, { answers: [{ colour: 'blue' }] })).status).toBe(400);
    const unfit = await given(id, question, { answers: [{ selected_indexes: [2] }] });
    expect(unfit).toMatchObject({ status: 422, body: { message: "'Colour' has options 0 to 1" } });
    const answers = await Promise.all([given(id, question), given(id, question, { answers: [{ text: 'green' }] })]);
    expect(answers.map(({ status }) => status).toSorted()).toEqual([200, 409]);
    expect((await given(id, wrong)).status).toBe(403);
    await until(id, ({ running }) => !running);
  });

  it('is declined by a message, which the model reads behind it', async () => {
    const id = await ask();
    const question = await asked(id);
    const sent = await margay.request('POST', `/api/sessions/${id}/message`, { text: 'Never mind, go on.' });
    expect(sent.status).toBe(202);
    const ended = await until(id, ({ running }) => !running);
    expect(payloadOf(ended, 'user_question_answered')).toMatchObject({ outcome: 'declined', answers: null });
    expect(payloadOf(ended, 'assistant')['text']).toBe('told: Never mind, go on.');
    expect((await given(id, question)).status).toBe(409);
  });

  it('times out where it is to, and still takes an answer, as a new turn', async () => {
    const id = await ask({ timeout_seconds: 7 });
    const question = await asked(id);
    await givenBack();
    const ended = await until(id, ({ running }) => !running);
    expect(payloadOf(ended, 'user_question_answered')).toMatchObject({ outcome: 'timed_out' });
    expect(payloadOf(ended, 'assistant')['text']).toMatch(/^heard: The user did not answer in time/);
    expect(await margay.client.session(id).answer(question.call_id, [{ text: 'blue' }])).toBe('message');
    const late = await until(id, (body) => typesIn(body).filter((type) => type === 'completion').length === 2);
    expect(payloadOf(late, 'user')['text']).toContain('This answers the question you asked earlier');
  });

  it('is canceled like any other, and terminated', async () => {
    const id = await ask();
    const question = await asked(id);
    await givenBack();
    const canceled = await margay.request('POST', `/api/sessions/${id}/query`, { query: '/terminate' });
    expect(canceled).toMatchObject({ status: 202, body: { canceled: true } });
    expect(await eventsOf(id)).toMatchObject({ running: false, status: 'canceled' });
    await margay.request('POST', `/api/sessions/${id}/terminate`);
    expect((await given(id, question)).status).toBe(410);
    expect((await margay.request('POST', `/api/sessions/${id}/recover`, { action: 'retry' })).status).toBe(410);
  });

  it('asks nobody where the client can not show questions', async () => {
    margay.script(byConversation(({ results }) => (results.length === 0 ? callTools(colour()) : answer('alone'))));
    const session = await margay.sessionWith({});
    const result = await (await session.query('paint it')).result();
    expect(result.text).toBe('alone');
    expect(typesIn(await eventsOf(session.id))).not.toContain('user_question');
  });

  describe('recovery', () => {
    const recover = (id: string, body: Record<string, unknown>, headers = {}) =>
      margay.request('POST', `/api/sessions/${id}/recover`, body, headers);

    it('runs a turn again in place of all that followed it; readers skip what was cut', async () => {
      margay.script(byConversation(({ user }) => answer(`you said ${user}`)));
      const session = await margay.sessionWith({});
      for (const text of ['one', 'two', 'three']) await (await session.query(text)).result();
      const before = await eventsOf(session.id);
      const second = before.events.filter(({ type }) => type === 'user')[1];
      const key = { 'idempotency-key': 'again' };
      const body = { action: 'retry', from_ts: second?.ts, edited_text: 'two and a half' };
      const accepted = await recover(session.id, body, key);
      expect(accepted).toMatchObject({ status: 202, body: { action: 'retry', accepted: true, run_id: `${session.id}:r4` } }); // prettier-ignore
      const repeated = await recover(session.id, body, key);
      expect(repeated.body).toEqual(accepted.body);
      expect(repeated.headers.get('idempotency-replayed')).toBe('true');
      const after = await until(session.id, ({ running }) => !running);
      const said = after.events.filter(({ type }) => type === 'user' || type === 'assistant');
      expect(said.map(({ payload }) => payload['text'])).toEqual(['one', 'you said one', 'two and a half', 'you said two and a half']); // prettier-ignore
      expect(payloadOf(after, 'recovery')).toMatchObject({ action: 'retry', cut: { from_ts: second?.ts } });
      expect(margay.model.requests.at(-1)?.messages.filter(({ role }) => role === 'user')).toHaveLength(2);
      // Who had read as far as into what was cut is told so, and comes to the end.
      const cursor = encodeURIComponent(before.events.at(-3)?.ts ?? '');
      const behind = (await margay.frames(session.id, { query: `?after=${cursor}` })).map(({ event }) => event.type);
      expect([behind[0], behind.at(-1)]).toEqual(['recovery', 'stream_end']);
      expect(behind.filter((type) => type === 'user')).toHaveLength(1);
    });

    it('carries on after an end that was none', async () => {
      margay.script(byConversation(({ user }) => answer(user.includes('Carry on') ? 'carried on' : 'first')));
      const session = await margay.sessionWith({});
      await (await session.query('begin')).result();
      expect(await (await session.continue()).result()).toMatchObject({ status: 'completed', text: 'carried on' });
      expect(await (await session.retry({ text: 'other' })).result()).toMatchObject({ text: 'first' });
      const after = await until(session.id, ({ running }) => !running);
      expect(payloadOf(after, 'user')['text']).toBe('other');
    });

    it('says why there is nothing to recover', async () => {
      const { id } = await margay.sessionWith({});
      expect((await recover(id, { action: 'retry' })).status).toBe(400);
      expect((await recover(id, { action: 'undo' })).status).toBe(400);
      margay.script(() => answer('hello'));
      const session = await margay.sessionWith({});
      await (await session.query('begin')).result();
      expect((await recover(session.id, { action: 'retry', from_ts: '2020-01-01T00:00:00+00:00' })).status).toBe(400);
    });
  });
});

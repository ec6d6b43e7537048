import { FakeGateway, QuickClock, type FakeSession } from '@margay/testing';
import { MargayClient, statusOf, type Session } from './index';

let gateway: FakeGateway;
let margay: MargayClient;
let session: Session;
let fake: FakeSession;

beforeEach(async () => {
  gateway = await FakeGateway.start();
  margay = new MargayClient({ baseUrl: gateway.url, apiKey: gateway.apiKey, clock: new QuickClock() });
  session = await margay.sessions.create();
  fake = gateway.sessions.get(session.id) as FakeSession;
});
afterEach(() => gateway.close());

const callEnd = (input: number, output: number) => ({
  agent_id: 'root',
  depth: 0,
  step: 1,
  success: true,
  model: 'demo',
  input_tokens: input,
  output_tokens: output,
});

describe('a run', () => {
  it('streams its items and gives its result without asking again', async () => {
    gateway.onRun = async (fresh) => {
      await fresh.listened();
      fresh
        .delta('Be', 0)
        .delta('cause.', 2)
        .append('llm_call_end', callEnd(10, 2))
        .append('llm_call_end', callEnd(5, 1));
      fresh.finish('Because.');
    };
    const run = await session.query('why?');
    const types: string[] = [];
    for await (const item of run.events()) types.push(item.type);
    expect(types.filter((type) => type !== 'session_state')).toEqual([
      'run_accepted',
      'user',
      'agent_message_delta',
      'agent_message_delta',
      'llm_call_end',
      'llm_call_end',
      'assistant',
      'completion',
    ]);
    const requests = gateway.requests.length;
    expect(await run.result()).toMatchObject({
      status: 'completed',
      done_reason: 'completed',
      text: 'Because.',
      usage: { calls: 2, input_tokens: 15, output_tokens: 3 },
      completion: { done: true },
    });
    expect(gateway.requests).toHaveLength(requests);
  });

  it('that failed is a result', async () => {
    gateway.onRun = (fresh) =>
      fresh.finish('(Run interrupted by error: x)', { done_reason: 'error', error: 'x' }, 'failed');
    const run = await session.query('go');
    expect(await run.result()).toMatchObject({ status: 'failed', completion: { error: 'x' } });
  });

  it('is read from the place that this handle has already streamed', async () => {
    gateway.onRun = (fresh) => fresh.finish('ok');
    await (await session.query('one')).result();
    const seen = fake.frames.length;
    const second = await session.query('two');
    expect((await second.result()).text).toBe('ok');
    expect(gateway.requests.at(-1)?.headers['last-event-id']).toBe(String(seen));
  });

  it('leaves out what belongs to other runs', async () => {
    fake.begin('earlier');
    fake.finish('earlier answer');
    gateway.onRun = (fresh) => fresh.finish('mine');
    const run = await margay.session(session.id).query('later');
    const texts: string[] = [];
    for await (const item of run.events()) if (item.type === 'assistant') texts.push(item.payload.text);
    expect(texts).toEqual(['mine']);
  });

  it('returns while it waits for a person, when asked to', async () => {
    gateway.onRun = (fresh) => fresh.setState({ waiting: { kind: 'approval', id: 'a', since: '', expires_at: null } });
    const run = await session.query('go');
    expect(await run.result({ returnWhenWaiting: true })).toMatchObject({ status: 'waiting', completion: null });
  });

  it('that was cut out of the session has no outcome', async () => {
    const run = await session.query('go');
    fake.finish('x');
    fake.frames.length = 2;
    await expect(run.result()).rejects.toMatchObject({ code: 'NOT_FOUND', reason: 'run_outcome_unknown' });
  });
});

describe('commands', () => {
  it('steers while a run is active, else starts one', async () => {
    const first = await session.message('hello');
    expect(first).toMatchObject({ steered: false, run: { id: `${session.id}:r1` } });
    expect(await session.message('more')).toEqual({ steered: true });
    await expect(session.query('again')).rejects.toMatchObject({
      reason: 'session_running',
      code: 'FAILED_PRECONDITION',
    });
  });

  it('interrupts, cancels and terminates', async () => {
    expect([await session.interrupt(), await session.cancel()]).toEqual([false, false]);
    await session.query('go');
    expect([await session.interrupt(), await session.cancel()]).toEqual([true, true]);
    expect(await session.terminate()).toMatchObject({ status: 'terminated', terminated_at: 'then' });
    await expect(session.query('more')).rejects.toMatchObject({ reason: 'session_terminated', http: { status: 410 } });
  });

  it('puts options where the wire wants them', async () => {
    await session.query('go', {
      mode: 'plan',
      model: 'm',
      fallbackModels: ['n'],
      project: 'shop',
      cwd: '/w',
      skill: 's',
      skillArgs: 'a',
      mcpTools: [],
      context: { own: 1 },
    });
    expect(gateway.requests.at(-1)?.body).toEqual({
      query: 'go',
      mode: 'plan',
      project: 'shop',
      cwd: '/w',
      skill_args: 'a',
      context: { own: 1, model: 'm', fallback_models: ['n'], mcp_tools: [], skill: 's' },
    });
    await margay.sessions.create({ tag: 't', sandboxClass: 'dense' });
    expect(gateway.requests.at(-1)?.body).toEqual({ session_tag: 't', sandbox_class: 'dense' });
  });

  it('reads events and the summary', async () => {
    fake.append('brand_new', { x: 1 });
    const page = await session.events({ after: 'then', limit: 5 });
    expect(page.events.at(-1)).toMatchObject({ type: 'unknown', wire_type: 'brand_new' });
    expect(page.status).toBe('idle');
    expect(gateway.requests.at(-1)?.query.toString()).toBe('after=then&limit=5');
    expect(await margay.sessions.get(session.id)).toMatchObject({ session_id: session.id });
    await expect(margay.sessions.get('f'.repeat(32))).rejects.toMatchObject({ reason: 'session_not_found' });
  });
});

it('lists sessions page by page, each once', async () => {
  for (let index = 0; index < 6; index += 1) gateway.addSession();
  const ids: string[] = [];
  for await (const row of margay.sessions.list({ pageSize: 3, project: ['a', 'b'] })) {
    ids.push(row.session_id);
    if (ids.length === 2) gateway.addSession(); // shifts the rows of the next page
  }
  expect(new Set(ids).size).toBe(ids.length);
  expect(ids).toHaveLength(7);
  expect(gateway.requests.at(-1)?.query.getAll('project')).toEqual(['a', 'b']);
});

it.each([
  [{ done: true, done_reason: 'completed' }, 'completed'],
  [{ done: false, done_reason: 'completed' }, 'incomplete'],
  [{ done: true, done_reason: 'max_steps_reached' }, 'incomplete'],
  [{ done: true, done_reason: 'cancelled' }, 'canceled'],
  [{ done: true, done_reason: 'command_failed:x' }, 'failed'],
  [{ done: true, done_reason: 'unmet_goal' }, 'unmet_goal'],
  [{ done: true, done_reason: 'awaiting_approval' }, 'awaiting_approval'],
  [{ done: true, done_reason: 'completed', blocked_code: 'x' }, 'blocked'],
])('reads %j as %s', (completion, status) => {
  expect(statusOf(completion)).toBe(status);
});

describe('a question', () => {
  const asked = { call_id: 'c1', call_token: 'secret', questions: [], timeout_seconds: null, notes_placeholder: null };

  it('is answered with the token of its event', async () => {
    fake.append('user_question', asked);
    gateway.interceptors.push(({ path }, response) => {
      if (!path.endsWith('/questions/c1/answer')) return false;
      response.writeHead(200, { 'content-type': 'application/json' }).end('{"resolved":true,"delivery":"run"}');
      return true;
    });
    expect(await session.answer('c1', [{ selected_indexes: [0] }], { notes: 'thanks' })).toBe('run');
    const { body, headers } = gateway.requests.at(-1) ?? {};
    expect(body).toEqual({ call_token: 'secret', answers: [{ selected_indexes: [0] }], notes: 'thanks' });
    expect(headers?.['idempotency-key']).toBeDefined();
  });

  it('that no run asks is not found', async () => {
    await expect(session.answer('c1', [{ text: 'a' }])).rejects.toMatchObject({ reason: 'question_not_found' });
  });
});

describe('recovery', () => {
  it.each<[string, () => Promise<{ id: string }>, Record<string, unknown>]>([
    [
      'retry',
      () => session.retry({ fromTs: 't', text: 'again' }),
      { action: 'retry', from_ts: 't', edited_text: 'again' },
    ],
    ['continue', () => session.continue({ model: 'm' }), { action: 'continue', model: 'm' }],
  ])('starts a run: %s', async (action, recover, body) => {
    gateway.interceptors.push(({ path }, response) => {
      if (!path.endsWith('/recover')) return false;
      const answer = { session_id: session.id, action, accepted: true, run_id: `${session.id}:r7` };
      response.writeHead(202, { 'content-type': 'application/json' }).end(JSON.stringify(answer));
      return true;
    });
    expect((await recover()).id).toBe(`${session.id}:r7`);
    expect(gateway.requests.at(-1)?.body).toEqual(body);
  });
});

import type { StoredEvent } from '@margay/contracts';
import type { AnswerCommand, Command, Head } from '@margay/log';
import {
  assertPaired,
  FakeSandbox,
  runRequest,
  scriptedModel,
  toolDescriptor,
  until,
  VirtualClock,
  type ScriptedModel,
} from '@margay/testing';
import {
  allowAll,
  journalOn,
  LocalTools,
  LogInbox,
  LogJournal,
  memoryPorts,
  runAgent,
  type ModelRequest,
  type RunOutcome,
} from '../index';

const SESSION = 'a'.repeat(32);
const RUN_ID = `${SESSION}:r1`;
const CALL = `${SESSION}.2.1.0`;
const ask = (args: Record<string, unknown> = {}) => ({
  name: 'ask_user_question',
  args: {
    questions: [{ header: 'Colour', question: 'Which?', options: [{ label: 'red' }, { label: 'blue' }] }],
    ...args,
  },
});

/** One session with a run that may ask, over any number of owners. */
class World {
  readonly ports = { ...memoryPorts(), clock: new VirtualClock() };
  private readonly inboxes: LogInbox[] = [];
  private ids = 0;
  tools: FakeSandbox[] = [];
  readonly log = journalOn(this.ports.store, {
    ...this.ports,
    onCommitted: (document) => this.inboxes.forEach((inbox) => inbox.observe(document)),
  });

  readonly sandbox = new FakeSandbox(
    [
      {
        descriptor: toolDescriptor({ tool_id: 'shell', effect: 'unkeyed', concurrency_safe: false }),
        run: () => ({ status: 'ok', result: 'ran' }),
      },
    ],
    { incarnation: 'one', results: new Map() },
  );

  constructor(readonly model: ScriptedModel) {}

  async open(): Promise<this> {
    const binding = { project: null, cwd: null };
    await this.submit({ kind: 'create', commitId: 'c', tenantId: 't', owner: 'u', tag: null, context: {}, binding });
    await this.submit({ kind: 'accept', commitId: 'accept', run: request('Go.') });
    return this;
  }

  async submit(command: Command): Promise<Head> {
    const outcome = await this.log.loop.submit(SESSION, command);
    if (!outcome.ok) throw new Error(`${command.kind}: ${outcome.rejection.reason}`);
    return outcome.head;
  }

  async head(): Promise<Head> {
    return (await this.log.loop.confirmedTip(SESSION)).head;
  }

  /** The queued run gets an owner. */
  async drive(): Promise<RunOutcome> {
    const { epoch } = await this.head();
    const commitId = `claim ${this.ids++}`;
    const head = await this.submit({ kind: 'claim', commitId, runId: RUN_ID, epoch, owner: 'r' });
    const { signal: stop } = new AbortController();
    const inbox = new LogInbox(this.ports.store, SESSION, head, stop);
    this.inboxes.push(inbox);
    const scope = { tenantId: 't', sessionId: SESSION, runId: RUN_ID, epoch: head.epoch };
    const journal = new LogJournal({ ...this.ports, ...this.log, ...scope, inbox });
    const tools = new LocalTools(this.tools, { sessionId: SESSION, epoch: head.epoch });
    return runAgent({ ...this.ports, model: this.model, approvals: allowAll, inbox, journal, tools });
  }

  async asked(): Promise<Record<string, unknown>> {
    await until(async () => (await this.events('user_question')).length > 0);
    return (await this.events('user_question'))[0] ?? {};
  }

  async events(type: string): Promise<Record<string, unknown>[]> {
    const found: Record<string, unknown>[] = [];
    for await (const { events } of this.ports.store.range(SESSION, 1))
      for (const { frame } of events) {
        const event = JSON.parse(frame) as StoredEvent;
        if (event.type === type) found.push(event.payload);
      }
    return found;
  }

  request(n: number): ModelRequest {
    return JSON.parse(this.model.requests[n - 1] ?? 'null') as ModelRequest;
  }
}

function request(text: string) {
  const { options } = runRequest(text);
  return runRequest(text, { options: { ...options, capabilities: ['ask_user'] } });
}

const answer = (callId = CALL): AnswerCommand => ({
  kind: 'answer',
  commitId: `answer ${callId}`,
  callId,
  answers: [{ selected_indexes: [1] }],
  notes: null,
  via: 'rest',
  text: 'The user answered:\nColour: blue',
});
const message: Command = { kind: 'message', commitId: 'm', run: request('Never mind.') };
const twoSteps = [{ calls: [ask()] }, { text: 'done' }];
const lastResult = (request: ModelRequest) => request.messages.findLast(({ role }) => role === 'tool');

it('is offered only where somebody can be asked', async () => {
  const world = await new World(scriptedModel([{ text: 'hello' }])).open();
  await world.drive();
  expect(world.request(1).tools.map(({ name }) => name)).toEqual(['ask_user_question']);
});

it('waits in place for an answer that comes soon, and the same owner goes on', async () => {
  const world = await new World(scriptedModel(twoSteps)).open();
  const driven = world.drive();
  expect(await world.asked()).toMatchObject({
    call_id: CALL,
    call_token: expect.stringMatching(/^[0-9a-f]{32}$/) as string,
    questions: [{ header: 'Colour', multi_select: false, options: [{ label: 'red' }, { label: 'blue' }] }],
    timeout_seconds: null,
    notes_placeholder: null,
  });
  await world.submit(answer());
  expect(await driven).toMatchObject({ outcome: 'finished', text: 'done' });
  expect(lastResult(world.request(2))).toMatchObject({ text: 'The user answered:\nColour: blue', isError: false });
  expect((await world.head()).epoch).toBe(3);
});

it('gives its runner back after the grace, and another owner goes on with the answer', async () => {
  const world = await new World(scriptedModel(twoSteps)).open();
  const driven = world.drive();
  await world.asked();
  await world.ports.clock.advance(4_999);
  expect((await world.head()).run?.state).toBe('running');
  await world.ports.clock.advance(1);
  expect(await driven).toEqual({ outcome: 'stopped', cause: 'waiting' });
  expect((await world.head()).run).toMatchObject({ state: 'waiting', waiting: { for: [CALL] } });
  await world.submit(answer());
  expect(await world.drive()).toMatchObject({ outcome: 'finished', text: 'done' });
  expect(world.model.requests).toHaveLength(2);
  expect(await world.events('user_question')).toHaveLength(1);
});

describe('calls behind a question that is waited for', () => {
  const shell = { name: 'shell', args: {} };

  async function waiting(): Promise<World> {
    const model = scriptedModel([{ calls: [shell, ask(), shell] }, { text: 'done' }]);
    const world = new World(model);
    world.tools = [world.sandbox];
    await world.open();
    const driven = world.drive();
    await world.asked();
    await world.ports.clock.advance(5_000);
    expect(await driven).toMatchObject({ cause: 'waiting' });
    expect(world.sandbox.ran).toEqual([`${SESSION}.2.1.0`]);
    return world;
  }
  const results = (world: World) => world.request(2).messages.filter(({ role }) => role === 'tool').map(({ text }) => text); // prettier-ignore

  it('run once, also in a sandbox that has replaced the first one meanwhile', async () => {
    const world = await waiting();
    Object.assign(world.sandbox.memory, { incarnation: 'two', results: new Map() });
    await world.submit(answer(`${SESSION}.2.1.1`));
    expect(await world.drive()).toMatchObject({ text: 'done' });
    expect(world.sandbox.ran).toEqual([`${SESSION}.2.1.0`, `${SESSION}.2.1.2`]);
    expect(results(world)).toEqual(['ran', 'The user answered:\nColour: blue', 'ran']);
  });

  it('do not run where the wait was interrupted', async () => {
    const world = await waiting();
    await world.submit({ kind: 'interrupt', commitId: 'i' });
    expect(await world.drive()).toMatchObject({ text: 'done' });
    expect(world.sandbox.ran).toHaveLength(1);
    expect(results(world).slice(1)).toEqual([
      'The user interrupted instead of answering.',
      expect.stringContaining('was not started: interrupted by the user'),
    ]);
  });
});

it('asks once, though its owner is lost while it waits', async () => {
  const world = await new World(scriptedModel(twoSteps)).open();
  void world.drive();
  await world.asked();
  await world.submit({ kind: 'takeover', commitId: 't', runId: RUN_ID, epoch: 2, cause: 'crash' });
  const driven = world.drive();
  await until(() => world.ports.clock.sleeping > 1);
  await world.submit(answer());
  expect(await driven).toMatchObject({ text: 'done' });
  expect(await world.events('user_question')).toHaveLength(1);
  expect(await world.events('tool_result')).toHaveLength(1);
});

it.each<[string, Command, string]>([
  ['a message declines it', message, 'The user did not answer and wrote a message instead; it follows.'],
  ['an interrupt ends it', { kind: 'interrupt', commitId: 'i' }, 'The user interrupted instead of answering.'],
])('goes on where %s; what was said follows the result', async (_, command, text) => {
  const world = await new World(scriptedModel(twoSteps)).open();
  const driven = world.drive();
  await world.asked();
  await world.submit(command);
  expect(await driven).toMatchObject({ text: 'done' });
  const roles = world.request(2).messages.slice(-3, -1);
  expect(roles).toMatchObject([{ role: 'tool', text }, { role: 'user' }]);
  assertPaired(world.request(2));
});

it('asks a second time only after the first answer, and ends with both', async () => {
  const world = await new World(scriptedModel([{ calls: [ask(), ask()] }, { text: 'done' }])).open();
  const driven = world.drive();
  await world.asked();
  await world.submit(answer());
  await until(async () => (await world.events('user_question')).length === 2);
  await world.submit(answer(`${SESSION}.2.1.1`));
  expect(await driven).toMatchObject({ text: 'done' });
  expect((await world.events('user_question_answered')).map(({ outcome }) => outcome)).toEqual([
    'answered',
    'answered',
  ]);
});

it.each<[string, Record<string, unknown>]>([
  ['no question', { questions: [] }],
  ['five questions', { questions: Array.from({ length: 5 }, () => ({ header: 'H', question: 'Q' })) }],
  ['one option', { questions: [{ header: 'H', question: 'Q', options: [{ label: 'a' }] }] }],
  ['several of no options', { questions: [{ header: 'H', question: 'Q', multi_select: true }] }],
  ['an unknown field', { colour: 'red' }],
  ['a day and a second', { timeout_seconds: 86_401 }],
])('asks nobody where the arguments are faulty: %s', async (_, args) => {
  const world = await new World(scriptedModel([{ calls: [ask(args)] }, { text: 'done' }])).open();
  expect(await world.drive()).toMatchObject({ text: 'done' });
  expect(lastResult(world.request(2))).toMatchObject({ isError: true });
  expect(await world.events('user_question')).toEqual([]);
});

it('forgets a turn that was cut', async () => {
  const world = await new World(scriptedModel([{ text: 'first' }, { text: 'second' }])).open();
  await world.drive();
  const [, , user] = (await world.ports.store.readNumber(SESSION, 2))?.events ?? [];
  const from = { seq: user?.seq ?? 0, ts: user?.ts ?? 0, runId: RUN_ID };
  await world.submit({ kind: 'recover', commitId: 'r', action: 'retry', from, run: request('Go again.') });
  const { run, epoch } = await world.head();
  const claim: Command = { kind: 'claim', commitId: 'c2', runId: run?.id ?? '', epoch, owner: 'r' };
  const head = await world.submit(claim);
  const inbox = new LogInbox(world.ports.store, SESSION, head, new AbortController().signal);
  const scope = { tenantId: 't', sessionId: SESSION, runId: run?.id ?? '', epoch: head.epoch };
  const journal = new LogJournal({ ...world.ports, ...world.log, ...scope, inbox });
  const tools = new LocalTools([], { sessionId: SESSION, epoch: head.epoch });
  await runAgent({ ...world.ports, model: world.model, approvals: allowAll, inbox, journal, tools });
  const said = world.request(2).messages.filter(({ role }) => role === 'user' || role === 'assistant');
  expect(said.map(({ text }) => text)).toEqual(['Go again.']);
});

import { MemoryBlobStore, MemoryCommitStore } from '@margay/log';
import { runWorld, scriptedModel, toolDescriptor, until, VirtualClock } from '@margay/testing';
import { z } from 'zod';
import { createEngine, defineTool, SequenceIds, Tools, type EngineEvent, type ToolOutcome } from '../index';

const roll = defineTool({
  id: 'roll_dice',
  description: 'Rolls one die.',
  operation: 'get',
  effect: 'pure',
  input: z.object({ sides: z.number().int().min(2) }),
  execute: ({ sides }) => sides - 1,
});

it('runs a query to its answer, events in the order of the contract', async () => {
  const calls = [{ name: 'roll_dice', args: { sides: 20 } }];
  const world = await runWorld([{ text: 'Rolling.', calls }, { text: 'Done: 19.' }], [roll]);
  const result = await world.session.run('Roll.');
  expect(result).toEqual({
    runId: `${world.session.id}:r1`,
    status: 'completed',
    doneReason: 'completed',
    text: 'Done: 19.',
    usage: { inputTokens: 200, outputTokens: 20, cacheReadTokens: 0, cacheCreationTokens: 0, reasoningTokens: 0 },
    steps: 1,
  });
  expect(await world.types()).toEqual(
    ['session', 'context', 'context', 'run_accepted', 'user', 'llm_call_start', 'llm_call_end', 'agent_message'].concat(
      ['tool_call', 'tool_result', 'llm_call_start', 'llm_call_end', 'assistant', 'completion'],
    ),
  );
});

it('refuses a second run while one is active', async () => {
  const world = await runWorld([{ hangs: true }]);
  const running = world.session.run('Go.');
  await until(() => world.model.pending === 1);
  await expect(world.session.run('Me too.')).rejects.toMatchObject({ reason: 'session_running' });
  await world.session.cancel();
  await running;
});

it('replays real messages of earlier runs', async () => {
  const world = await runWorld([{ text: 'One.' }, { text: 'Two.' }]);
  await world.session.run('First?');
  await world.session.run('Second?');
  expect(world.request(2).messages.slice(1, -1)).toEqual([
    { role: 'user', text: 'First?' },
    { role: 'assistant', text: 'One.', toolCalls: [] },
    { role: 'user', text: 'Second?' },
  ]);
});

it('stores the prompt once for all runs of a session', async () => {
  const world = await runWorld([{ text: 'One.' }, { text: 'Two.' }]);
  await world.session.run('First?');
  await world.session.run('Second?');
  let stored = 0;
  for await (const { records } of world.store.range(world.session.id, 1))
    stored += records.filter((record) => record.includes('You are Margay')).length;
  expect(stored).toBe(1);
});

it('streams the events of a run, fragments of text among them', async () => {
  const world = await runWorld([{ text: 'Hello.' }]);
  const events: EngineEvent[] = [];
  const stream = world.session.stream('Hi.');
  for await (const event of stream) events.push(event);
  expect(events.map(({ type }) => type)).toEqual(
    ['context', 'run_accepted', 'user', 'llm_call_start', 'agent_message_delta'].concat([
      'llm_call_end',
      'assistant',
      'completion',
    ]),
  );
  expect(await stream.result).toMatchObject({ text: 'Hello.' });
});

it('does not stop a run whose stream is left', async () => {
  const world = await runWorld([{ text: 'Hello.' }]);
  const stream = world.session.stream('Hi.');
  for await (const event of stream) if (event.type === 'run_accepted') break;
  expect(await stream.result).toMatchObject({ doneReason: 'completed' });
});

it('accepts a run once per commit id', async () => {
  const world = await runWorld([{ text: 'Once.' }]);
  const options = { commitId: 'mine' };
  const [one, other] = await Promise.all([world.session.run('Go.', options), world.session.run('Go.', options)]);
  expect(one.runId).toBe(other.runId);
  expect((await world.types()).filter((type) => type === 'user')).toHaveLength(1);
  expect(await world.session.run('Go.', options)).toMatchObject({ runId: one.runId, text: 'Once.' });
});

it('tells a running call that it is left to the next owner when it is closed', async () => {
  class Slow extends Tools {
    signal: AbortSignal | undefined;
    list = (): Promise<ReturnType<typeof toolDescriptor>[]> => Promise.resolve([toolDescriptor({ tool_id: 'slow' })]);
    execute(...[, { signal }]: Parameters<Tools['execute']>): Promise<ToolOutcome> {
      this.signal = signal;
      return new Promise(() => undefined);
    }
  }
  const slow = new Slow();
  const world = await runWorld([{ calls: [{ name: 'slow' }] }], [slow]);
  const running = world.session.run('Go.');
  await until(() => slow.signal !== undefined);
  world.engine.close();
  await expect(running).rejects.toMatchObject({ reason: 'run_fenced' });
  expect(slow.signal?.reason).toMatchObject({ stopCause: 'drained' });
});

it('starts a run with a message that finds none', async () => {
  const world = await runWorld([{ text: 'Hello.' }]);
  expect(await world.session.steer('Anybody?')).toEqual({ steered: false });
  expect(await world.session.resume()).toMatchObject({ text: 'Hello.' });
});

it('reports an interrupted unkeyed call as unknown, unless its tool can tell', async () => {
  const stuck = (id: string, found?: string) =>
    defineTool({
      id,
      description: 'Sends something.',
      operation: 'set',
      input: {},
      execute: () => new Promise(() => undefined),
      ...(found === undefined ? {} : { findResult: () => found }),
    });
  const store = new MemoryCommitStore();
  const ports = { clock: new VirtualClock(), store, blobs: new MemoryBlobStore() };
  const tools = [stuck('send'), stuck('send_traced', 'sent as number 7')];
  const calls = [{ name: 'send' }, { name: 'send_traced' }];
  const first = createEngine({ ...ports, ids: new SequenceIds(), tools, model: scriptedModel([{ calls }]) });
  const session = await first.createSession();
  void session.run('Send.').catch(() => undefined);
  await until(async () => (await session.head()).c >= 5);
  first.close();

  const model = scriptedModel([{ text: 'Done.' }]);
  const ids = new SequenceIds();
  for (let skipped = 0; skipped < 100; skipped += 1) ids.hex(1);
  const second = createEngine({ ...ports, ids, tools, model });
  expect(await (await second.openSession(session.id)).resume()).toMatchObject({ text: 'Done.' });
  expect(model.requests[0]).toContain("The outcome of 'send' is unknown");
  expect(model.requests[0]).toContain('sent as number 7');
});

it('wants a model to be named', async () => {
  const world = await runWorld([]);
  const engine = createEngine({
    ...world,
    model: { defaultModel: '', call: () => Promise.reject(new Error('unused')) },
  });
  const session = await engine.createSession();
  await expect(session.run('Go.')).rejects.toMatchObject({ reason: 'model_required' });
});

it('does not know a session that is not in the store', async () => {
  const world = await runWorld([]);
  await expect(world.engine.openSession('nope')).rejects.toMatchObject({ reason: 'session_not_found' });
});

import type { Command } from '@margay/log';
import { runWorld, toolDescriptor, until, type ScriptedAnswer } from '@margay/testing';
import { z } from 'zod';
import { defineTool, ModelFailure, Tools, type ToolOutcome } from '../index';

const say = defineTool({
  id: 'say',
  description: 'Says it back.',
  operation: 'get',
  effect: 'pure',
  input: z.object({ text: z.string() }),
  execute: ({ text }) => text,
});
const broken = defineTool({
  id: 'broken',
  description: 'Fails.',
  operation: 'get',
  effect: 'pure',
  input: z.object({}),
  execute: () => {
    throw new Error('out of order');
  },
});

const call = (text: string): ScriptedAnswer => ({ calls: [{ name: 'say', args: { text } }] });
const DONE: ScriptedAnswer = { text: 'Done.' };

/** Tools whose outcomes a test decides. */
class HeldTools extends Tools {
  readonly running = new Map<string, { finish: (outcome: ToolOutcome) => void; signal: AbortSignal }>();

  constructor(private readonly descriptors: ReturnType<typeof toolDescriptor>[]) {
    super();
  }

  list(): Promise<ReturnType<typeof toolDescriptor>[]> {
    return Promise.resolve(this.descriptors);
  }

  execute(...[{ toolId }, { signal }]: Parameters<Tools['execute']>): Promise<ToolOutcome> {
    return new Promise((finish) => this.running.set(toolId, { finish, signal }));
  }

  finish(toolId: string, result: unknown = 'ok'): void {
    this.running.get(toolId)?.finish({ status: 'ok', result });
  }
}

describe('a step', () => {
  it('takes two commits', async () => {
    const world = await runWorld([call('a'), call('b'), call('c'), DONE], [say]);
    await world.session.run('Go.');
    // create, accept, claim, start; then two for each step, of which the last one's second is the end's.
    expect(await world.commits()).toBe(3 + 1 + 3 * 2 + 1);
  });

  it('starts the next model call before the results are acknowledged, but acts on it only afterwards', async () => {
    const world = await runWorld([call('a'), DONE], [say]);
    const insert = world.store.insert.bind(world.store);
    let release = (): void => undefined;
    jest.spyOn(world.store, 'insert').mockImplementation(async (document) => {
      if (document.events.some(({ frame }) => frame.includes('"tool_result"')))
        await new Promise<void>((resolve) => (release = resolve));
      return insert(document);
    });
    const running = world.session.run('Go.');
    await until(() => world.model.requests.length === 2);
    await new Promise((resolve) => setImmediate(resolve));
    expect(await world.types()).not.toContain('completion');
    release();
    expect(await running).toMatchObject({ text: 'Done.' });
  });

  it('runs a call that is not pure only after its intent is stored', async () => {
    const seen: string[][] = [];
    const write = defineTool({
      id: 'write',
      description: 'Writes.',
      operation: 'set',
      input: z.object({}),
      execute: async () => void seen.push(await world.types()),
    });
    const world = await runWorld([{ calls: [{ name: 'write' }] }, DONE], [write]);
    await world.session.run('Go.');
    expect(seen[0]?.at(-1)).toBe('tool_call');
  });

  it('stores results within 30 ms of each other together, and others by themselves', async () => {
    const tools = new HeldTools(['one', 'two', 'three'].map((tool_id) => toolDescriptor({ tool_id })));
    const calls = ['one', 'two', 'three'].map((name) => ({ name }));
    const world = await runWorld([{ calls }, DONE], [tools]);
    const running = world.session.run('Go.');
    await until(() => tools.running.size === 3);
    const before = await world.commits();
    tools.finish('three');
    tools.finish('one');
    await until(async () => (await world.payloads('tool_result')).length === 2);
    expect(await world.commits()).toBe(before + 1);
    expect(world.clock.monotonicMs()).toBe(30);
    tools.finish('two');
    await running;
    expect(await world.commits()).toBe(before + 3);
    const results = world.request(2).messages.filter(({ role }) => role === 'tool');
    expect(results.map((message) => (message as { callId: string }).callId.at(-1))).toEqual(['0', '1', '2']);
  });

  it('runs exclusive calls alone and safe ones side by side, in order', async () => {
    const tools = new HeldTools(
      ['a', 'b', 'alone', 'c'].map((tool_id) => toolDescriptor({ tool_id, concurrency_safe: tool_id !== 'alone' })),
    );
    const calls = ['a', 'b', 'alone', 'c'].map((name) => ({ name }));
    const world = await runWorld([{ calls }, DONE], [tools]);
    const running = world.session.run('Go.');
    await until(() => tools.running.size === 2);
    expect([...tools.running.keys()]).toEqual(['a', 'b']);
    tools.finish('a');
    tools.finish('b');
    await until(() => tools.running.size === 3);
    tools.finish('alone');
    await until(() => tools.running.has('c'));
    tools.finish('c');
    await running;
  });

  it('keeps the prompt a stable prefix over twenty steps', async () => {
    const script = [...Array.from({ length: 20 }, (_, index) => call(`message ${index} `.repeat(20))), DONE];
    const world = await runWorld(script, [say]);
    await world.session.run('Go.');
    const bodies = world.model.requests.map((text) => JSON.stringify((JSON.parse(text) as { messages: [] }).messages));
    for (const [index, body] of bodies.entries()) {
      const next = bodies[index + 1];
      if (!next) break;
      let same = 0;
      while (same < body.length && body[same] === next[same]) same += 1;
      expect(same / body.length).toBeGreaterThan(0.9);
    }
  });
});

describe('calls that fail', () => {
  it('are results, counted in a note to the model', async () => {
    const world = await runWorld(
      [{ calls: [{ name: 'broken' }, { name: 'say', args: { text: 'x' } }] }, DONE],
      [say, broken],
    );
    await world.session.run('Go.');
    const [failed] = await world.payloads('tool_result');
    expect(failed).toMatchObject({
      success: false,
      result: null,
      error: 'out of order',
      summary: 'ERROR: out of order',
    });
    const notes = world.request(2).messages.filter(({ role }) => role === 'system');
    expect(notes[1]).toMatchObject({ text: expect.stringContaining('1/2 tool call(s) failed this step') });
  });

  it('get a result at once when the tool does not exist', async () => {
    const world = await runWorld([{ calls: [{ name: 'nowhere' }] }, DONE], [say]);
    await world.session.run('Go.');
    expect(world.request(2).messages).toContainEqual(
      expect.objectContaining({ role: 'tool', text: 'ERROR: Tool not available', isError: true }),
    );
  });

  it('time out one by one', async () => {
    const tools = new HeldTools([
      toolDescriptor({ tool_id: 'stuck', timeout: 7 }),
      toolDescriptor({ tool_id: 'quick', timeout: 60, timeout_argument: null }),
    ]);
    const world = await runWorld([{ calls: [{ name: 'stuck' }, { name: 'quick' }] }, DONE], [tools]);
    const running = world.session.run('Go.');
    await until(() => tools.running.size === 2);
    await world.clock.advance(7_000);
    expect(tools.running.get('stuck')?.signal.aborted).toBe(true);
    expect(tools.running.get('quick')?.signal.aborted).toBe(false);
    tools.finish('quick');
    await running;
    const results = world.request(2).messages.filter(({ role }) => role === 'tool');
    expect(results).toMatchObject([{ text: "ERROR: Tool 'stuck' timed out after 7s" }, { text: 'ok' }]);
  });

  it('give a longer time to a call whose arguments ask for it', async () => {
    const schema = { type: 'object', properties: { timeout: { type: 'number' } } };
    const tools = new HeldTools([
      toolDescriptor({ tool_id: 'shell', timeout: 7, timeout_argument: 'timeout', schema }),
    ]);
    const world = await runWorld([{ calls: [{ name: 'shell', args: { timeout: 20 } }] }, DONE], [tools]);
    const running = world.session.run('Go.');
    await until(() => tools.running.size === 1);
    await world.clock.advance(24_999);
    expect(tools.running.get('shell')?.signal.aborted).toBe(false);
    await world.clock.advance(1);
    await running;
    expect(world.request(2).messages).toContainEqual(
      expect.objectContaining({ text: "ERROR: Tool 'shell' timed out after 25s" }),
    );
  });

  it('end the run after three answers in a row with malformed arguments', async () => {
    const malformed = { calls: [{ name: 'say', args: '{"text": ' }] };
    const world = await runWorld([malformed, malformed, malformed], [say]);
    const result = await world.session.run('Go.');
    expect(result).toMatchObject({ status: 'failed', doneReason: 'error' });
    expect(await world.payloads('completion')).toMatchObject([{ failure_reason: 'malformed_tool_calls' }]);
    expect(await world.payloads('tool_result')).toHaveLength(3);
  });
});

describe('a run without progress', () => {
  it('is halted after the same calls with the same results three times', async () => {
    const world = await runWorld([call('a'), call('a'), call('a'), DONE], [say]);
    const result = await world.session.run('Go.');
    expect(result).toMatchObject({ status: 'unmet_goal', doneReason: 'halted_no_progress', steps: 3 });
    expect(await world.payloads('recovery')).toMatchObject([
      { action: 'halt_no_progress', depth: 0, step: 3, tool: 'say' },
    ]);
    expect((await world.types()).slice(-4)).toEqual(['tool_result', 'recovery', 'assistant', 'completion']);
  });

  it('goes on when the results differ', async () => {
    let count = 0;
    const tick = defineTool({
      id: 'tick',
      description: 'Counts.',
      operation: 'get',
      effect: 'pure',
      input: z.object({}),
      execute: () => (count += 1),
    });
    const again = { calls: [{ name: 'tick' }] };
    const world = await runWorld([again, again, again, again, DONE], [tick]);
    expect(await world.session.run('Go.')).toMatchObject({ doneReason: 'completed', steps: 4 });
  });

  it('is halted after five failing calls in a row', async () => {
    const fail = (n: number): ScriptedAnswer => ({ calls: [{ name: 'broken' }, { name: `tool_${n}` }] });
    const world = await runWorld([fail(1), fail(2), fail(3), DONE], [broken]);
    expect(await world.session.run('Go.')).toMatchObject({ doneReason: 'halted_no_progress', steps: 3 });
  });

  it('takes another step when a message came that may change things', async () => {
    const steering = defineTool({
      id: 'say',
      description: 'Says it back.',
      operation: 'get',
      effect: 'pure',
      input: z.object({ text: z.string() }),
      execute: async ({ text }) => {
        if (world.model.requests.length === 3) await world.session.steer('Try something else.');
        return text;
      },
    });
    const world = await runWorld([call('a'), call('a'), call('a'), DONE], [steering]);
    expect(await world.session.run('Go.')).toMatchObject({ doneReason: 'completed' });
    expect(await world.types()).not.toContain('recovery');
  });
});

describe('the step budget', () => {
  it('warns once per threshold and ends with a turn in text only', async () => {
    const script = [...Array.from({ length: 8 }, (_, index) => call(`${index}`)), { text: 'This far.' }];
    const world = await runWorld(script, [say]);
    const result = await world.session.run('Go.', { stepBudget: 8 });
    expect(result).toMatchObject({ status: 'incomplete', doneReason: 'budget_exhausted', text: 'This far.', steps: 8 });
    const last = world.request(9);
    expect(last.tools).toEqual([]);
    const notes = last.messages
      .filter(({ role }) => role === 'system')
      .map((message) => (message as { text: string }).text);
    expect(notes.filter((text) => text.startsWith('Only'))).toHaveLength(2);
    expect(notes.filter((text) => text.includes('budget is used up'))).toHaveLength(1);
    expect(notes.at(-1)).toContain('Steps left: 0');
  });

  it('answers with partial results when the model says nothing', async () => {
    const world = await runWorld([call('found it'), { usage: { outputTokens: 3 } }], [say]);
    const result = await world.session.run('Go.', { stepBudget: 1 });
    expect(result.text).toBe('Partial results:\n\nfound it');
  });
});

describe('the model', () => {
  const failure = (kind: ConstructorParameters<typeof ModelFailure>[0]): ScriptedAnswer => ({
    failure: new ModelFailure(kind, `<b>${kind}</b> happened`),
  });

  it('is asked again after a failure that may pass', async () => {
    const world = await runWorld([failure('server'), DONE], []);
    const running = world.session.run('Go.');
    await until(async () => (await world.payloads('llm_retry')).length === 1);
    await world.clock.advance(1_000);
    expect(await running).toMatchObject({ text: 'Done.' });
    expect(await world.payloads('llm_retry')).toMatchObject([
      { attempt: 1, max_attempts: 2, error_type: 'server', error: 'server happened', retryable: true },
    ]);
  });

  it('waits at least as long as the provider asks', async () => {
    const world = await runWorld([{ failure: new ModelFailure('rate_limit', 'slow down', 5_000) }, DONE], []);
    const running = world.session.run('Go.');
    await until(async () => (await world.payloads('llm_retry')).length === 1);
    await world.clock.advance(4_999);
    expect(world.model.requests).toHaveLength(1);
    await world.clock.advance(1);
    await running;
  });

  it('is not asked again after one that stays', async () => {
    const world = await runWorld([failure('bad_request')], []);
    const result = await world.session.run('Go.');
    expect(result).toMatchObject({ status: 'failed', doneReason: 'error', error: 'bad_request happened' });
    expect(result.text).toBe('(Run interrupted by error: bad_request happened)');
    expect(await world.payloads('llm_call_end')).toMatchObject([{ success: false, error_type: 'bad_request' }]);
    expect((await world.types()).slice(-3)).toEqual(['llm_call_end', 'assistant', 'completion']);
  });

  it('is replaced by the next one of the chain, for the rest of the run', async () => {
    const world = await runWorld([failure('authentication'), call('a'), DONE], [say]);
    await world.session.run('Go.', { model: 'first', fallbackModels: ['second'] });
    expect(await world.payloads('llm_fallback')).toMatchObject([
      { from_model: 'first', to_model: 'second', reason: 'authentication', sticky: true },
    ]);
    expect([1, 2, 3].map((n) => world.request(n).model)).toEqual(['first', 'second', 'second']);
  });

  it('names all that were tried when none answers', async () => {
    const world = await runWorld([failure('quota'), failure('quota')], []);
    await world.session.run('Go.', { model: 'first', fallbackModels: ['second'] });
    expect(await world.payloads('completion')).toMatchObject([
      { done_reason: 'error', failure_reason: 'quota', models_tried: ['first', 'second'] },
    ]);
  });

  it('gets 300 s for an attempt', async () => {
    const world = await runWorld([{ hangs: true }, DONE], []);
    const running = world.session.run('Go.');
    await until(() => world.model.pending === 1);
    await world.clock.advance(300_000);
    await until(async () => (await world.payloads('llm_retry')).length === 1);
    await world.clock.advance(1_000);
    expect(await running).toMatchObject({ text: 'Done.' });
    expect(await world.payloads('llm_retry')).toMatchObject([{ error_type: 'timeout' }]);
  });

  it('may be silent for 240 s once it has begun', async () => {
    const world = await runWorld([{ text: 'Well', hangs: true }, DONE], []);
    const running = world.session.run('Go.');
    await until(() => world.model.pending === 1);
    await world.clock.advance(240_000);
    await until(async () => (await world.payloads('llm_retry')).length === 1);
    await world.clock.advance(1_000);
    await running;
    expect(await world.payloads('llm_retry')).toMatchObject([{ error: 'the model fell silent for 240 s' }]);
  });

  it('is asked again after an answer that is empty and cost nothing', async () => {
    const world = await runWorld([{ usage: { outputTokens: 0 } }, DONE], []);
    const running = world.session.run('Go.');
    await until(async () => (await world.payloads('llm_retry')).length === 1);
    await world.clock.advance(1_000);
    expect(await running).toMatchObject({ text: 'Done.' });
  });

  it('may end its turn with nothing if that was billed', async () => {
    const world = await runWorld([{ usage: { outputTokens: 7 } }], []);
    const result = await world.session.run('Go.');
    expect(result).toMatchObject({ doneReason: 'completed', text: '(Run ended: the model gave no final answer)' });
  });

  it('is asked once to go on with an answer that was cut', async () => {
    const world = await runWorld([{ text: 'One, ', finishReason: 'length' }, { text: 'two.' }], []);
    expect(await world.session.run('Count.')).toMatchObject({ text: 'One, two.' });
    expect(await world.types()).not.toContain('run_note');
  });

  it('is taken at its word when it is cut again', async () => {
    const cut = (text: string): ScriptedAnswer => ({ text, finishReason: 'length' });
    const world = await runWorld([cut('One, '), cut('two, ')], []);
    expect(await world.session.run('Count.')).toMatchObject({ doneReason: 'completed', text: 'One, two,' });
    expect(await world.payloads('run_note')).toMatchObject([{ text: expect.stringContaining('cut') }]);
  });

  it('streams its text, each fragment with its offset', async () => {
    const world = await runWorld([DONE], []);
    await world.session.run('Go.');
    expect(world.emitted.filter(({ type }) => type === 'agent_message_delta')).toMatchObject([
      { payload: { text: 'Done.', offset: 0, step: 1, depth: 0 } },
    ]);
  });
});

describe('a message during a run', () => {
  it('reaches the model at the next step', async () => {
    const tools = new HeldTools([toolDescriptor({ tool_id: 'work' })]);
    const world = await runWorld([{ calls: [{ name: 'work' }] }, DONE], [tools]);
    const running = world.session.run('Go.');
    await until(() => tools.running.size === 1);
    expect(await world.session.steer('Faster.')).toEqual({ steered: true });
    tools.finish('work');
    await running;
    const [, , user] = world.request(2).messages.slice(-4);
    expect(user).toEqual({ role: 'user', text: 'Faster.' });
    expect((await world.session.head()).inboxEnd).toBe(1);
  });

  it('takes another step when it comes while the run is about to end', async () => {
    let isSteered = false;
    const world = await runWorld((_request, n) => {
      if (n > 1) return { text: 'Answered.' };
      isSteered = true;
      void world.session.steer('Wait!');
      return { text: 'Ready.' };
    });
    const result = await world.session.run('Go.');
    expect(isSteered).toBe(true);
    expect(result.text).toBe('Answered.');
    expect(world.request(2).messages.slice(-3)).toMatchObject([
      { role: 'assistant', text: 'Ready.' },
      { role: 'user', text: 'Wait!' },
      { role: 'system' },
    ]);
    expect((await world.types()).filter((type) => type === 'assistant')).toHaveLength(1);
  });
});

describe.each([
  ['answers it', [{ text: 'Ready.' }, { text: 'Answered.' }], 'Answered.'],
  ['consumes it', [{ failure: new ModelFailure('bad_request', 'odd') }], '(Run interrupted by error: odd)'],
] as [string, ScriptedAnswer[], string][])('a message that overtakes the final commit', (effect, script, text) => {
  it(`is seen, and the run ${effect}`, async () => {
    const world = await runWorld(script);
    const { loop } = world.engine.log;
    const submit = loop.submit.bind(loop);
    let isOvertaken = false;
    jest.spyOn(loop, 'submit').mockImplementation(async (sessionId, command, options) => {
      const isFirst = command.kind === 'finish' && !isOvertaken;
      isOvertaken ||= isFirst;
      if (isFirst) await world.session.steer('Wait!');
      return submit(sessionId, command, options);
    });
    expect((await world.session.run('Go.')).text).toBe(text);
    expect((await world.types()).filter((type) => type === 'completion')).toHaveLength(1);
    expect(isOvertaken).toBe(true);
  });
});

it('does not end by a copy of its refused final commit that the log decides on late', async () => {
  const world = await runWorld([{ text: 'Ready.' }, { text: 'Answered.' }]);
  const { loop } = world.engine.log;
  const submit = loop.submit.bind(loop);
  const outcomes: string[] = [];
  let copy: Command | undefined;
  jest.spyOn(loop, 'submit').mockImplementation(async (sessionId, command, options) => {
    if (command.kind === 'finish' && !copy) {
      copy = command;
      await world.session.steer('Wait!');
    } else if (command.kind === 'finish' && copy) {
      const outcome = await submit(sessionId, copy);
      outcomes.push(outcome.ok ? 'stored' : outcome.rejection.reason);
    }
    return submit(sessionId, command, options);
  });
  expect((await world.session.run('Go.')).text).toBe('Answered.');
  expect(outcomes).toEqual(['invalid']);
});

describe('an interrupt', () => {
  it('closes the model stream at once, keeps what was said, and goes on with a marker', async () => {
    const world = await runWorld([{ text: 'I will', hangs: true }, DONE], []);
    const running = world.session.run('Go.');
    await until(() => world.model.pending === 1);
    expect(await world.session.interrupt()).toBe(true);
    expect(await running).toMatchObject({ doneReason: 'completed', text: 'Done.' });
    expect(world.request(2).messages.slice(-3)).toMatchObject([
      { role: 'assistant', text: 'I will' },
      { role: 'user', text: expect.stringContaining('Interrupted by user') },
      { role: 'system' },
    ]);
    expect(await world.payloads('llm_call_end')).toMatchObject([{ success: false, error_type: 'interrupted' }, {}]);
  });

  it('ends running tools that let themselves be cancelled, and no others', async () => {
    const tools = new HeldTools([
      toolDescriptor({ tool_id: 'shell', interrupt_behavior: 'cancel' }),
      toolDescriptor({ tool_id: 'edit', interrupt_behavior: 'block' }),
    ]);
    const world = await runWorld([{ calls: [{ name: 'shell' }, { name: 'edit' }] }, DONE], [tools]);
    const running = world.session.run('Go.');
    await until(() => tools.running.size === 2);
    await world.session.interrupt();
    expect(tools.running.get('shell')?.signal.aborted).toBe(true);
    expect(tools.running.get('edit')?.signal.aborted).toBe(false);
    tools.finish('edit');
    await world.clock.advance(5_000);
    await running;
    expect(world.request(2).messages.filter(({ role }) => role === 'tool')).toMatchObject([
      { text: "ERROR: Tool 'shell' was cancelled: interrupted by the user" },
      { text: 'ok' },
    ]);
  });

  it('starts none of the calls that waited for their turn', async () => {
    const tools = new HeldTools([
      toolDescriptor({ tool_id: 'shell', interrupt_behavior: 'cancel', concurrency_safe: false }),
      toolDescriptor({ tool_id: 'edit', concurrency_safe: false }),
    ]);
    const world = await runWorld([{ calls: [{ name: 'shell' }, { name: 'edit' }] }, DONE], [tools]);
    const running = world.session.run('Go.');
    await until(() => tools.running.size === 1);
    await world.session.interrupt();
    tools.running.get('shell')?.finish({ status: 'cancelled', result: null });
    await running;
    expect(tools.running.has('edit')).toBe(false);
    expect(await world.payloads('tool_result')).toMatchObject([
      { outcome: 'cancelled' },
      { outcome: 'cancelled', error: "Tool 'edit' was not started: interrupted by the user" },
    ]);
  });

  it('does nothing when no run is active', async () => {
    const world = await runWorld([]);
    expect(await world.session.interrupt()).toBe(false);
  });
});

describe('a run that is cancelled', () => {
  it('stops its model call at once', async () => {
    const world = await runWorld([{ text: 'I will', hangs: true }]);
    const running = world.session.run('Go.');
    await until(() => world.model.pending === 1);
    await world.session.cancel();
    expect(await running).toMatchObject({ status: 'canceled', doneReason: 'canceled', text: '(Run canceled by user)' });
    await until(() => world.model.pending === 0);
  });

  it('stops its tools at once, and the next run sees their calls as interrupted', async () => {
    const tools = new HeldTools([toolDescriptor({ tool_id: 'work' })]);
    const world = await runWorld([{ calls: [{ name: 'work' }] }, DONE], [tools]);
    const running = world.session.run('Go.');
    await until(() => tools.running.size === 1);
    await world.session.cancel();
    expect(await running).toMatchObject({ doneReason: 'canceled' });
    expect(tools.running.get('work')?.signal.aborted).toBe(true);
    expect(await world.session.run('And now?')).toMatchObject({ text: 'Done.' });
    expect(world.request(2).messages.slice(1, -1)).toMatchObject([
      { role: 'user', text: 'Go.' },
      { role: 'assistant' },
      { role: 'tool', text: '[Tool execution was interrupted]' },
      { role: 'assistant', text: '(Run canceled by user)' },
      { role: 'user', text: 'And now?' },
    ]);
  });

  it('ends when the signal of its options aborts', async () => {
    const world = await runWorld([{ hangs: true }]);
    const stop = new AbortController();
    const running = world.session.run('Go.', { signal: stop.signal });
    await until(() => world.model.pending === 1);
    stop.abort();
    expect(await running).toMatchObject({ doneReason: 'canceled' });
  });
});

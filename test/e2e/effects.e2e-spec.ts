import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { answer, byConversation, callTools, type ScriptedToolCall } from '@margay/testing';
import type { EffectClass } from './effects/effect-server';
import { EffectWorld, EXECUTOR, RUNNERS } from './effects/effect-world';
import { ancestorWith, processesAppear, processesGone, processesWith, until } from './effects/survivors';

jest.setTimeout(120_000);

let world: EffectWorld;

beforeAll(async () => {
  world = await EffectWorld.start();
}, 600_000);
afterAll(() => world.stop());

let names = 0;
const named = (effect: EffectClass): { name: string; call: ScriptedToolCall } => {
  names += 1;
  const name = `${effect}-${names}`;
  return { name, call: { name: effect, arguments: { name } } };
};

describe('a call whose effect lies outside the sandbox', () => {
  it('is offered to the model and to clients, and runs without a sandbox', async () => {
    const { name, call } = named('unkeyed');
    world.scriptCalls(call);
    const session = await world.margay.sessionWith({});
    expect(await (await session.query('go')).result()).toMatchObject({ text: `{"did":"${name}"}` });
    expect(world.effects.times(name)).toBe(1);
    const [result] = await world.payloadsOf(session, 'tool_result');
    expect(world.effects.of(name)).toMatchObject([{ key: result?.['tool_call_id'] }]);
    const tools = await world.margay.request('GET', '/api/tools');
    expect(tools.body).toMatchObject({
      tools: expect.arrayContaining([expect.objectContaining({ tool_id: 'keyed', scope: 'operator' })]),
    });
  });

  it.each(['pure', 'keyed', 'unkeyed'] as const)(
    'is attached to when its runner is killed while it waits for the answer: %s',
    async (effect) => {
      const { name, call } = named(effect);
      world.scriptCalls(call);
      const release = world.effects.hold();
      const session = await world.margay.sessionWith({});
      const run = await session.query('go');
      await world.effects.asked(name);
      await world.kill(...RUNNERS);
      await world.restart(...RUNNERS);
      release();
      expect(await run.result()).toMatchObject({ status: 'completed', text: `{"did":"${name}"}` });
      expect(world.effects.of(name)).toHaveLength(1);
      expect(await world.eventsOf(session, 'tool_result')).toHaveLength(1);
    },
  );

  it.each([
    ['pure', 2, 0],
    ['keyed', 2, 1],
  ] as const)('is repeated with its key when tool-executor is killed: %s', async (effect, requests, times) => {
    const { name, call } = named(effect);
    world.scriptCalls(call);
    const release = world.effects.hold();
    const session = await world.margay.sessionWith({});
    const run = await session.query('go');
    await world.effects.asked(name);
    await world.kill(EXECUTOR);
    release();
    await world.restart(EXECUTOR);
    expect(await run.result()).toMatchObject({ status: 'completed', text: `{"did":"${name}"}` });
    expect(world.effects.of(name)).toHaveLength(requests);
    expect(new Set(world.effects.of(name).map(({ key }) => key)).size).toBe(1);
    expect(world.effects.times(name)).toBe(times);
  });

  it.each([
    ['tool-executor', [EXECUTOR]],
    ['tool-executor and runners', [EXECUTOR, ...RUNNERS]],
  ])('is unknown to model, transcript and person where it has no key: %s killed', async (_what, victims) => {
    const { name, call } = named('unkeyed');
    world.scriptCalls(call);
    const release = world.effects.hold();
    const session = await world.margay.sessionWith({});
    const run = await session.query('go');
    await world.effects.asked(name);
    await world.kill(...victims);
    release();
    await world.restart(...victims);
    // The scripted model says what it was told.
    expect((await run.result()).text).toMatch(/^ERROR: The outcome of 'unkeyed' is unknown: it may or may not have/);
    expect(await world.payloadsOf(session, 'tool_result')).toMatchObject([{ success: false, outcome: 'unknown' }]);
    const [note] = await world.payloadsOf(session, 'run_note');
    expect(note?.['text']).toMatch(/^It is unknown whether call \S+ of 'unkeyed' took effect/);
    expect(world.effects.of(name)).toHaveLength(1);
    expect(world.effects.times(name)).toBe(1);
  });

  it('is given back, or settled, by a tool-executor that is told to end', async () => {
    const [keyed, unkeyed] = [named('keyed'), named('unkeyed')];
    world.margay.script(
      byConversation(({ results }) =>
        results.length === 0
          ? callTools(keyed.call, unkeyed.call)
          : answer(results.map(({ content }) => content).join()),
      ),
    );
    const release = world.effects.hold();
    const session = await world.margay.sessionWith({});
    const run = await session.query('go');
    await Promise.all([world.effects.asked(keyed.name), world.effects.asked(unkeyed.name)]);
    const restarted = world.restart(EXECUTOR);
    await world.effects.asked(keyed.name, 2);
    release();
    await restarted;
    expect((await run.result()).status).toBe('completed');
    const outcomes = await world.payloadsOf(session, 'tool_result');
    expect(outcomes).toHaveLength(2);
    expect(outcomes.find((result) => result['tool_id'] === 'keyed')).toMatchObject({ success: true });
    expect(outcomes.find((result) => result['tool_id'] === 'unkeyed')).toMatchObject({ outcome: 'unknown' });
    expect([world.effects.times(keyed.name), world.effects.times(unkeyed.name)]).toEqual([1, 1]);
  });
});

describe('a call in the sandbox', () => {
  it('goes on when tool-executor dies during Execute: the next one re-attaches, and output goes on', async () => {
    const folder = await world.margay.workspace({ 'count.txt': '' });
    const command =
      'echo x >> count.txt; echo before; while [ ! -e go ]; do sleep 0.05; done; echo after; wc -l < count.txt';
    world.scriptCalls({ name: 'aider_shell_tool', arguments: { command } });
    const session = await world.margay.client.sessions.create({ cwd: folder });
    const run = await session.query('go');
    await until('the command', async () => (await readFile(join(folder, 'count.txt'), 'utf8')) === 'x\n');
    await world.kill(EXECUTOR);
    await world.restart(EXECUTOR);
    await writeFile(join(folder, 'go'), '');
    const { text } = await run.result();
    expect(JSON.parse(text)).toMatchObject({
      kind: 'shell',
      exit_code: 0,
      stdout: expect.stringMatching(/^before\nafter\n1\n?$/),
    });
    expect(await world.payloadsOf(session, 'tool_result')).toMatchObject([{ success: true }]);
  });
});

describe('a sandbox that dies in the middle of a command (pain 28)', () => {
  it('makes the outcome unknown, keeps the workspace, and the run goes on in another one', async () => {
    const folder = await world.margay.workspace({ 'count.txt': '' });
    const word = `8${process.pid}`;
    const shell = (command: string): ScriptedToolCall => ({
      name: 'aider_shell_tool',
      arguments: { command, timeout: 600 },
    });
    world.margay.script(
      byConversation(({ results }) => {
        if (results.length === 0) return callTools(shell(`echo x >> count.txt; sleep ${word}`));
        if (results.length === 1) return callTools(shell('wc -l < count.txt'));
        return answer(results.map(({ content }) => content).join(' then '));
      }),
    );
    const session = await world.margay.client.sessions.create({ cwd: folder });
    const run = await session.query('go');
    await processesAppear(word, 1);
    const [command = 0] = await processesWith(word);
    process.kill(await ancestorWith('sandboxd', command), 'SIGKILL');
    const { status, text } = await run.result();
    expect(status).toBe('completed');
    expect(text).toMatch(/^ERROR: The outcome of 'aider_shell_tool' is unknown.* then .*"stdout":"1\\n"/);
    expect(await world.payloadsOf(session, 'tool_result')).toMatchObject([
      { outcome: 'unknown', error: 'sandbox_lost' },
      { success: true },
    ]);
    expect(await world.payloadsOf(session, 'run_note')).toHaveLength(1);
    await processesGone(word);
  });
});

/** Numbers that look random and are the same for the same seed. */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647;
}

it('duplicates no effect after a retry (pain 7): keyed happen exactly once, unkeyed at most once and else unknown', async () => {
  const seed = 7;
  const random = randomOf(seed);
  const calls = Array.from({ length: 10 }, (_, index) => named(index % 2 === 0 ? 'keyed' : 'unkeyed'));
  world.effects.delayMs = 120;
  world.scriptCalls(...calls.map(({ call }) => call));
  const session = await world.margay.sessionWith({});
  const run = await session.query('go');
  let isOver = false;
  const result = run.result().finally(() => (isOver = true));
  const victims = [EXECUTOR, ...RUNNERS];
  for (let kills = 0; kills < 6 && !isOver; kills += 1) {
    await delay(random() * 700);
    const victim = victims[Math.floor(random() * victims.length)] ?? EXECUTOR;
    await world.kill(victim);
    await world.restart(victim);
  }
  expect({ seed, ...(await result) }).toMatchObject({ seed, status: 'completed' });
  world.effects.delayMs = 0;
  const results = await world.payloadsOf(session, 'tool_result');
  expect(results).toHaveLength(calls.length);
  for (const { name } of calls) {
    const told = results.find(({ tool_input: input }) => (input as { name?: string }).name === name);
    const isUnknown = told?.['outcome'] === 'unknown';
    expect({ name, told: isUnknown || told?.['success'] }).toEqual({ name, told: true });
    if (name.startsWith('keyed')) expect({ name, times: world.effects.times(name) }).toEqual({ name, times: 1 });
    else expect(world.effects.times(name)).toBeLessThanOrEqual(1);
    if (!isUnknown) expect({ name, times: world.effects.times(name) }).toEqual({ name, times: 1 });
  }
}, 180_000);

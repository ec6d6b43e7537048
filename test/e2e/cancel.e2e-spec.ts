import { setTimeout as delay } from 'node:timers/promises';
import type { Session } from '@margay/client';
import { answer, byConversation, callTools, type ScriptedToolCall } from '@margay/testing';
import { EffectWorld, EXECUTOR, RUNNERS } from './effects/effect-world';
import { processesAppear, processesGone, processesWith, until } from './effects/survivors';

jest.setTimeout(90_000);

let world: EffectWorld;

beforeAll(async () => {
  world = await EffectWorld.start();
}, 600_000);
afterAll(() => world.stop());

let words = 0;
/** Seconds to sleep that no other process sleeps, to find its process by. */
const rareSeconds = (): string => `7${process.pid}${(words += 1)}`;

const shell = (command: string, more: object = {}): ScriptedToolCall => ({
  name: 'aider_shell_tool',
  arguments: { command, timeout: 600, ...more },
});

async function completionsOf(session: Session): Promise<unknown[]> {
  return (await world.payloadsOf(session, 'completion')).map((payload) => payload['done_reason']);
}

/** The session goes on as if nothing had been. */
async function expectUsable(session: Session): Promise<void> {
  world.margay.script(() => answer('usable'));
  expect(await (await session.query('again')).result()).toMatchObject({ status: 'completed', text: 'usable' });
}

describe('a cancel really stops the work (pain 22)', () => {
  it('ends every process, wherever it has gone: groups, sessions, daemons, background shells, the deaf and the stopped', async () => {
    const word = rareSeconds();
    const deaf = `sh -c 'trap "" TERM INT HUP; while :; do sleep ${word}; done'`;
    const commands = [
      `setsid sleep ${word} & disown; setsid sh -c 'sleep ${word} & exit' ; sleep 0.1`,
      `(env -i setsid sleep ${word} >/dev/null 2>&1 &) ; sleep 0.1`,
      `setsid ${deaf} & ${deaf} & sleep ${word} & kill -STOP $!; sleep ${word}`,
    ];
    world.scriptCalls(
      shell(`sleep ${word}`, { run_in_background: true }),
      ...commands.map((command) => shell(command)),
    );
    const session = await world.margay.sessionWith({});
    const run = await session.query('go');
    await processesAppear(word, 9);
    expect(await session.cancel()).toBe(true);
    await processesGone(word);
    expect(await run.result()).toMatchObject({ status: 'canceled' });
    expect(await session.cancel()).toBe(false);
    expect(await completionsOf(session)).toEqual(['canceled']);
    await expectUsable(session);
  });

  it('leaves background shells of a run that simply ended, and ends them with the next one that is cancelled', async () => {
    const word = rareSeconds();
    world.scriptCalls(shell(`sleep ${word}`, { run_in_background: true }));
    const session = await world.margay.sessionWith({});
    await (await session.query('go')).result();
    expect(await processesWith(word)).not.toEqual([]);
    world.margay.script(() => ({ hang: true }));
    const asked = world.margay.model.requests.length;
    const run = await session.query('and wait');
    await world.margay.model.waitForRequests(asked + 1);
    expect(await processesWith(word)).not.toEqual([]);
    expect(await session.cancel()).toBe(true);
    await processesGone(word);
    expect(await run.result()).toMatchObject({ status: 'canceled' });
  });

  it.each([
    ['before its first word', { hang: true }],
    ['in the middle of its answer', { text: 'one two three four', chunks: 4, hangAfterChunks: 3 }],
  ] as const)('closes the stream of the model %s', async (_where, script) => {
    world.margay.script(() => script);
    const asked = world.margay.model.requests.length;
    const session = await world.margay.sessionWith({});
    const run = await session.query('go');
    await world.margay.model.waitForRequests(asked + 1);
    expect(await session.cancel()).toBe(true);
    const request = world.margay.model.requests[asked];
    await request?.done;
    expect(request?.aborted).toBe(true);
    expect(await run.result()).toMatchObject({ status: 'canceled' });
  });

  it('closes the connection of a call outside the sandbox', async () => {
    const release = world.effects.hold();
    world.scriptCalls({ name: 'unkeyed', arguments: { name: 'cut off' } });
    const session = await world.margay.sessionWith({});
    const run = await session.query('go');
    await world.effects.asked('cut off');
    expect(await session.cancel()).toBe(true);
    await until('the end of the request', () => world.effects.of('cut off').every(({ aborted }) => aborted));
    release();
    expect(await run.result()).toMatchObject({ status: 'canceled' });
    expect(world.effects.of('cut off')).toHaveLength(1);
  });

  it('at any point: one completion, nothing alive, and a session that goes on', async () => {
    for (let round = 0; round < 8; round += 1) {
      // Of its own: a round that comes to its end leaves some.
      const word = rareSeconds();
      world.margay.script(
        byConversation(({ results }) =>
          results.length < 3
            ? { ...callTools(shell(`sleep 0.${results.length}; setsid sleep ${word} & sleep 0.1`)), delayMs: 60 }
            : answer('done', { delayMs: 60 }),
        ),
      );
      const session = await world.margay.sessionWith({});
      const run = await session.query('go');
      await delay(round * 170);
      const isCanceled = await session.cancel();
      expect((await run.result()).status).toBe(isCanceled ? 'canceled' : 'completed');
      expect(await completionsOf(session)).toHaveLength(1);
      // A run that ended by itself leaves what it put into the background.
      if (!isCanceled) await (await session.query('wait')).result();
      if (!isCanceled) continue;
      await processesGone(word);
      await expectUsable(session);
    }
  });

  it('and a finish at the same time: one of them wins, and whoever cancelled is told which', async () => {
    const outcomes = new Set<string>();
    for (let round = 0; round < 12; round += 1) {
      world.margay.script(() => answer('finished', { delayMs: 100 }));
      const session = await world.margay.sessionWith({});
      const run = await session.query('go');
      await delay(60 + round * 10);
      const answers = await Promise.all([session.cancel(), session.cancel()]);
      const { status } = await run.result();
      expect({ status, answers: answers.filter(Boolean).length }).toEqual(
        status === 'canceled' ? { status, answers: 1 } : { status: 'completed', answers: 0 },
      );
      expect(await completionsOf(session)).toEqual([status]);
      outcomes.add(status);
    }
    expect(outcomes.size).toBeGreaterThan(0);
  });

  it('is answered while tool-executor stands still, and made good as soon as that goes on', async () => {
    const word = rareSeconds();
    world.scriptCalls(shell(`setsid sleep ${word} & sleep ${word}`));
    const session = await world.margay.sessionWith({});
    const run = await session.query('go');
    await processesAppear(word, 2);
    const executor = world.margay.platform.get(EXECUTOR);
    // Without its runner nothing but the fence that the cancel owes can end the processes.
    await world.kill(...RUNNERS);
    await executor.kill('SIGSTOP');
    try {
      expect(await session.cancel()).toBe(true);
      expect(await run.result()).toMatchObject({ status: 'canceled' });
      expect(await processesWith(word)).not.toEqual([]);
    } finally {
      await executor.kill('SIGCONT');
    }
    await processesGone(word);
    await world.restart(...RUNNERS);
    await expectUsable(session);
  });
});

describe('an interrupt', () => {
  /** The model makes these calls, and then says what all of them brought. */
  const scriptOnce = (...calls: ScriptedToolCall[]): void =>
    world.margay.script(({ messages }) => {
      const results = messages.filter(({ role }) => role === 'tool');
      return results.length === 0
        ? callTools(...calls)
        : answer(results.map(({ content }) => String(content)).join(' and '));
    });

  it('ends a shell command at once, and the run goes on', async () => {
    const word = rareSeconds();
    scriptOnce(shell(`setsid sleep ${word} & sleep ${word}`));
    const session = await world.margay.sessionWith({});
    const run = await session.query('go');
    await processesAppear(word, 2);
    expect(await session.interrupt()).toBe(true);
    await processesGone(word);
    expect(await run.result()).toMatchObject({ status: 'completed' });
    expect(await world.payloadsOf(session, 'tool_result')).toMatchObject([{ success: false, outcome: 'cancelled' }]);
  });

  it('lets a tool finish that does not let itself be interrupted, beside one that does', async () => {
    const release = world.effects.hold();
    scriptOnce({ name: 'keyed', arguments: { name: 'goes on' } }, { name: 'stoppable', arguments: { name: 'stops' } });
    const session = await world.margay.sessionWith({});
    const run = await session.query('go');
    await Promise.all([world.effects.asked('goes on'), world.effects.asked('stops')]);
    expect(await session.interrupt()).toBe(true);
    await until('the end of the request', () => world.effects.of('stops').every(({ aborted }) => aborted));
    expect(world.effects.of('goes on')).toMatchObject([{ aborted: false }]);
    release();
    expect((await run.result()).text).toMatch(/^\{"did":"goes on"\} and ERROR: Tool 'stoppable' was cancelled/);
  });
});

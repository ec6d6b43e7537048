import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { answer, byConversation, callTools } from '@margay/testing';
import { EffectWorld, RUNNERS } from './effects/effect-world';
import { until } from './effects/survivors';

jest.setTimeout(120_000);

const [OLD = '', YOUNG = ''] = RUNNERS;

let world: EffectWorld;

beforeAll(async () => {
  world = await EffectWorld.start();
}, 600_000);
afterAll(() => world.stop(), 180_000);

beforeEach(async () => {
  await world.margay.platform.get(YOUNG).stop();
});
afterEach(async () => {
  await world.margay.platform.get(OLD).kill('SIGCONT');
  await world.restart(...RUNNERS);
});

/** Stops the owner past its lease until another one has taken over, then lets it go on. */
async function replaceOwner(isTakenOver: () => Promise<boolean>): Promise<{ wake: () => Promise<void> }> {
  const old = world.margay.platform.get(OLD);
  await old.kill('SIGSTOP');
  await world.margay.platform.get(YOUNG).start();
  await until('the takeover', isTakenOver);
  return { wake: () => old.kill('SIGCONT') };
}

async function hasLeft(runId: string, logFile: string): Promise<boolean> {
  const lines = (await readFile(logFile, 'utf8')).split('\n').filter((line) => line.includes(runId));
  return lines.some((line) => line.includes('the run has left this runner'));
}

describe('an old owner that wakes up (pain 8)', () => {
  it('has its model call aborted, and nothing of it is written', async () => {
    let calls = 0;
    world.margay.script(() => {
      calls += 1;
      return calls === 1 ? { text: 'never heard', chunks: 4, hangAfterChunks: 2 } : answer('by the new owner');
    });
    const asked = world.margay.model.requests.length;
    const session = await world.margay.sessionWith({});
    const run = await session.query('go');
    await world.margay.model.waitForRequests(asked + 1);
    const { wake } = await replaceOwner(async () => world.margay.model.requests.length > asked + 1);
    expect(await run.result()).toMatchObject({ status: 'completed', text: 'by the new owner' });
    const before = await world.margay.storedFrames(session.id);
    await wake();
    const [first] = world.margay.model.requests.slice(asked);
    await first?.done;
    expect(first?.aborted).toBe(true);
    await until('the old owner to leave', () => hasLeft(run.id, world.margay.platform.get(OLD).logFile));
    expect(await world.margay.storedFrames(session.id)).toEqual(before);
    expect(await world.eventsOf(session, 'completion')).toHaveLength(1);
  });

  it('adds nothing of a command that both have seen, and starts no further one', async () => {
    world.margay.script(
      byConversation(({ results }) =>
        results.length < 2
          ? callTools({
              name: 'aider_shell_tool',
              arguments: { command: `echo ${results.length} >> count.txt; while [ ! -e go ]; do sleep 0.05; done` },
            })
          : answer('counted'),
      ),
    );
    const folder = await world.margay.workspace({ 'count.txt': '' });
    const session = await world.margay.client.sessions.create({ cwd: folder });
    const run = await session.query('go');
    const count = () => readFile(join(folder, 'count.txt'), 'utf8');
    await until('the first command', async () => (await count()) === '0\n');
    const [before] = await world.eventsOf(session, 'tool_call');
    const soFar = await takeovers();
    const { wake } = await replaceOwner(async () => (await takeovers()) > soFar);
    await writeFile(join(folder, 'go'), '');
    expect(await run.result()).toMatchObject({ status: 'completed', text: 'counted' });
    const frames = await world.margay.storedFrames(session.id);
    await wake();
    await until('the old owner to leave', () => hasLeft(run.id, world.margay.platform.get(OLD).logFile));
    expect(await world.margay.storedFrames(session.id)).toEqual(frames);
    expect(await count()).toBe('0\n1\n');
    const calls = (await world.eventsOf(session, 'tool_call')).map(({ payload }) => String(payload?.['tool_call_id']));
    expect(calls).toHaveLength(2);
    // The first call keeps the id of the owner that asked for it; the second one bears the epoch of the new owner.
    expect(calls[0]).toBe(before?.payload?.['tool_call_id']);
    expect(epochOf(calls[1])).toBeGreaterThan(epochOf(calls[0]));
  });
});

const epochOf = (callId = ''): number => Number(callId.split('.').at(-3));

/** Runs that were taken from their owners so far. */
async function takeovers(): Promise<number> {
  const text = await (await fetch(`${world.margay.platform.managementUrl('session')}/metrics`)).text();
  const counts = text.split('\n').filter((line) => line.startsWith('margay_takeovers_total'));
  return counts.reduce((sum, line) => sum + Number(line.split(' ').at(-1)), 0);
}

import { setTimeout as sleep } from 'node:timers/promises';
import type { Run } from '@margay/client';
import { answer, byConversation, callTools } from '@margay/testing';
import { PlatformHarness } from './harness';

jest.setTimeout(600_000);

/** Runs beside the one that eats the memory of its runner; 50 in the long form. */
const NEIGHBOURS = Number(process.env['MARGAY_POISON_NEIGHBOURS'] ?? 10);
const RUNNER = 'agent-runner';
const MEAL = 'all the memory there is';

/** The runner eats all its memory whenever a model says so; the log of what died is kept. */
const margay = new PlatformHarness({
  mode: 'combined',
  copiesBundles: true,
  env: { MARGAY_FAULT_POINTS: `runner.during-model-stream=exhaust-memory@*?${MEAL}`, MARGAY_ISOLATED_HEAP_MB: '128' },
});
let isOver = false;
let deaths = 0;
let keeper: Promise<void>;

beforeAll(async () => {
  await margay.start();
  keeper = keepRunning();
}, 600_000);
afterAll(async () => {
  isOver = true;
  await keeper;
  await margay.stop();
}, 180_000);

/** What Kubernetes does: a runner that died is started again. */
async function keepRunning(): Promise<void> {
  const runner = margay.platform.get(RUNNER);
  while (!isOver) {
    await sleep(100);
    if (runner.pid !== undefined || isOver) continue;
    deaths += 1;
    await runner.start();
  }
}

interface Stored {
  type: string;
  payload: Record<string, unknown>;
}

async function storedOf({ session }: Run, type: string): Promise<Stored[]> {
  const frames = await margay.storedFrames(session.id);
  return frames.map((text) => JSON.parse(text) as Stored).filter((event) => event.type === type);
}

it('pain 3: parks a run that eats the memory of its runners, and finishes all its neighbours', async () => {
  margay.script(
    byConversation(async ({ user, results }) => {
      if (user === 'eat') return answer(MEAL);
      if (results.length < 2) return callTools({ name: 'read_file', arguments: { path: 'a.txt', limit: 10 + results.length } }); // prettier-ignore
      // Still at work whenever a runner dies.
      while (deaths < 2 && !isOver) await sleep(50);
      return answer('outlived it');
    }),
  );
  const neighbours: Run[] = [];
  for (let n = 0; n < NEIGHBOURS; n++)
    neighbours.push(await (await margay.sessionWith({ 'a.txt': 'a' })).query('work', { idempotencyKey: `n${n}` }));
  for (const neighbour of neighbours)
    for await (const { type } of neighbour.events()) if (type === 'tool_result') break;
  const killer = await (await margay.sessionWith({})).query('eat');

  expect(await killer.result()).toMatchObject({ status: 'failed' });
  const [completion, ...more] = await storedOf(killer, 'completion');
  expect(completion?.payload).toMatchObject({ done_reason: 'error', failure_reason: 'poison' });
  expect(more).toEqual([]);
  expect(String(completion?.payload['error'])).toContain('process of its own');

  for (const neighbour of neighbours) {
    expect(await neighbour.result()).toMatchObject({ status: 'completed', text: 'outlived it' });
    const counts = ['tool_result', 'assistant', 'completion'].map(
      async (type) => (await storedOf(neighbour, type)).length,
    );
    expect(await Promise.all(counts)).toEqual([2, 1, 1]);
  }
  // The third time only the process of the run itself has died.
  expect(deaths).toBe(2);
  const metrics = await (await fetch(`${margay.platform.managementUrl(RUNNER)}/metrics`)).text();
  expect(metrics).toContain('margay_isolated_runs_total{outcome="died"} 1');
  // Its session can be used again.
  expect(await (await killer.session.query('work')).result()).toMatchObject({ status: 'completed' });
});

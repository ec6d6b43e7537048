import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Session } from '@margay/client';
import { answer, byConversation, callTools } from '@margay/testing';
import { FaultWorld } from './fault-world';
import { instanceOf } from './logs';
import { planFaults, RUNNERS, SESSIONS, type Fault } from './plan';
import { playRound } from './round';
import { faultScript } from './script';
import { StoreReader } from './store-reader';

jest.setTimeout(120_000);

/** In full: `MARGAY_TEST_LONG=1 npm test -- test/faults/pains`. */
const KILL_TRIALS = process.env['MARGAY_TEST_LONG'] ? 1_000 : 8;

const world = new FaultWorld();
let reader: StoreReader;

beforeAll(async () => {
  await world.start();
  reader = new StoreReader(world.servers.store.url, world.margay.database);
}, 600_000);
afterAll(async () => {
  await reader?.close();
  await world.stop();
});
afterEach(() => world.heal());

const QUIET = { settleMs: 90_000, progress: () => undefined };
const COUNT = 'echo once >> count.txt';
const UNTIL_TOLD = 'touch begun; while [ ! -e told ]; do sleep 0.1; done';

const tell = (folder: string): Promise<void> => writeFile(join(folder, 'told'), '');

async function countIn(folder: string): Promise<number> {
  const text = await readFile(join(folder, 'count.txt'), 'utf8');
  return text.split('\n').filter((line) => line === 'once').length;
}

async function newSession(): Promise<{ session: Session; folder: string }> {
  const folder = await world.margay.workspace({ 'count.txt': '' });
  return { folder, session: await world.margay.client.sessions.create({ cwd: folder }) };
}

/** The process that drives the session's run. */
async function runnerOf(session: Session): Promise<string> {
  for (;;) {
    const owner = (await reader.commitsOf(session.id)).at(-1)?.head.run?.owner;
    for (const runner of RUNNERS) if (owner && (await instanceOf(world, runner)) === owner) return runner;
    await delay(50);
  }
}

async function killRunnerOf(session: Session): Promise<void> {
  const runner = await runnerOf(session);
  await world.margay.platform.get(runner).kill('SIGKILL');
  void world.margay.platform.restart(runner);
}

/** It ended well, was taken over, and left nothing in the queue that says otherwise. */
async function expectTakenOver(session: Session): Promise<void> {
  const commits = await reader.commitsOf(session.id);
  expect(commits.flatMap(({ commitIds }) => commitIds).filter((id) => id.startsWith('takeover.'))).toHaveLength(1);
  expect(commits.at(-1)?.head.run).toBeNull();
  while ((await reader.openRows([session.id])).length > 0) await delay(100);
}

async function until(holds: () => Promise<boolean>): Promise<void> {
  while (!(await holds())) await delay(50);
}

describe('pain 1: a crash leaves no run running for ever', () => {
  it('takes a run over whose runner is killed while the model thinks', async () => {
    // It thinks for ever, until it is asked again.
    let calls = 0;
    world.margay.script(() => answer('thought about', { delayMs: (calls += 1) === 1 ? 600_000 : 0 }));
    const { session } = await newSession();
    world.margay.model.clear();
    const run = await session.query('go');
    await world.margay.model.waitForRequests(1);
    await killRunnerOf(session);
    expect(await run.result()).toMatchObject({ status: 'completed', text: 'thought about' });
    await expectTakenOver(session);
  });

  it('takes a run over whose runner is killed while a tool runs, which goes on and runs once', async () => {
    world.margay.script(shellOnce(`${COUNT}; ${UNTIL_TOLD}; echo end`));
    const { session, folder } = await newSession();
    const run = await session.query('go');
    await until(async () => (await countIn(folder)) === 1);
    await killRunnerOf(session);
    await tell(folder);
    expect(await run.result()).toMatchObject({ status: 'completed', text: expect.stringContaining('end') });
    expect(await countIn(folder)).toBe(1);
    await expectTakenOver(session);
  });

  it('takes a run over whose runner is killed between a result and its commit, which is not lost', async () => {
    world.margay.script(shellOnce(`${UNTIL_TOLD}; ${COUNT}; echo end`));
    const { session, folder } = await newSession();
    const run = await session.query('go');
    await until(async () => (await readdir(folder)).includes('begun'));
    const ways = world.peerWay(await runnerOf(session), 'session');
    for (const way of ways) way.silence();
    await tell(folder);
    await until(async () => (await countIn(folder)) === 1);
    await delay(300);
    await killRunnerOf(session);
    for (const way of ways) way.open();
    expect(await run.result()).toMatchObject({ status: 'completed', text: expect.stringContaining('end') });
    expect(await countIn(folder)).toBe(1);
    await expectTakenOver(session);
  });
});

function shellOnce(command: string) {
  return byConversation(({ results }) =>
    results.length === 0
      ? callTools({ name: 'aider_shell_tool', arguments: { command } })
      : answer(results[0]?.content ?? ''),
  );
}

it('pain 2: a rolling restart of every service fails none of 20 live runs, and cuts no stream short', async () => {
  world.margay.script(faultScript);
  const names = world.margay.platform.processes.map(({ name }) => name);
  const faults = names.map((target): Fault => ({ kind: 'terminate', target, pauseMs: 300, durationMs: 0 }));
  const result = await playRound(world, { ...QUIET, faults, actors: 20, parallel: 1 });
  expect(result.violations).toEqual([]);
  expect(result).toMatchObject({ parked: 0, unreachable: 0, terminalEvents: result.runs });
  expect(result.runs).toBeGreaterThanOrEqual(20);
}, 180_000);

describe('pain 5: no run is seen before it is stored, and none is lost', () => {
  it('while commits take two seconds, under load', async () => {
    world.margay.script(() => answer('stored'));
    for (const name of SESSIONS) world.storeWay(name).silence();
    const asked = Array.from({ length: 10 }, async (_, index) => {
      await delay(index * 150);
      const { session } = await newSession();
      return (await session.query('go')).result();
    });
    await delay(2_000);
    world.heal();
    for (const result of await Promise.all(asked))
      expect(result).toMatchObject({ status: 'completed', text: 'stored' });
  });

  it('while the broker is down, from the creation to the end', async () => {
    world.margay.script(() => answer('without a broker'));
    await world.servers.killBroker();
    try {
      const { session } = await newSession();
      const result = await (await session.query('go')).result();
      expect(result).toMatchObject({ status: 'completed', text: 'without a broker' });
    } finally {
      await world.servers.startBroker();
    }
  });
});

it(
  `pain 7: ${KILL_TRIALS} kills at random points repeat no keyed effect, and no unkeyed one`,
  async () => {
    world.margay.script(faultScript);
    const faults = planFaults(7, KILL_TRIALS, ['kill', 'sandbox-kill']);
    const result = await playRound(world, { ...QUIET, faults, actors: 4, parallel: 2 });
    expect(result.violations).toEqual([]);
    expect(result.effects).toBeGreaterThan(0);
  },
  120_000 + KILL_TRIALS * 10_000,
);

it('pain 40: a broker that is wiped loses no run and no event', async () => {
  world.margay.script(faultScript);
  const wipe: Fault = { kind: 'broker-wipe', pauseMs: 1_000, durationMs: 500 };
  const result = await playRound(world, {
    ...QUIET,
    faults: [wipe, wipe, { ...wipe, durationMs: 3_000 }],
    actors: 4,
    parallel: 1,
  });
  expect(result.violations).toEqual([]);
  expect(result.takeovers).toEqual([]);
});

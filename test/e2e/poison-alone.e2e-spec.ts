import { readFile } from 'node:fs/promises';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Run } from '@margay/client';
import { createLogger } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import { answer, byConversation } from '@margay/testing';
import { PlatformHarness } from './harness';

jest.setTimeout(180_000);

const RUNNER = 'agent-runner';
const PATIENCE_MS = 60_000;
const logger = createLogger({ level: 'off' });
const STUCK = 'think about it for ever';
const margay = new PlatformHarness({
  mode: 'combined',
  copiesBundles: true,
  env: { MARGAY_FAULT_POINTS: `runner.during-model-stream=block:600000@*?${STUCK}` },
});
const gates: (() => void)[] = [];

beforeAll(() => margay.start(), 600_000);
afterEach(() => gates.splice(0).forEach((open) => open()));
afterAll(() => margay.stop());

async function until<T>(what: string, look: () => Promise<T | undefined>): Promise<T> {
  const endMs = performance.now() + PATIENCE_MS;
  for (;;) {
    const found = await look();
    if (found !== undefined) return found;
    if (performance.now() > endMs) throw new Error(`it never came to hold: ${what}`);
    await sleep(50);
  }
}

/** Process ids of the runs in processes of their own, in the order of their starts. */
async function childrenOf({ id }: Run): Promise<number[]> {
  const log = await readFile(margay.platform.get(RUNNER).logFile, 'utf8');
  const lines = log.split('\n').filter((line) => line.includes('"childPid"') && line.includes(id));
  return lines.map((line) => (JSON.parse(line) as { childPid: number }).childPid);
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false; // there is no such process
  }
}

const asked = (count: number) =>
  until(`the model is asked ${count} times`, async () => (margay.model.requests.length >= count ? true : undefined));
const gone = (pid: number) => until(`process ${pid} is gone`, async () => (isAlive(pid) ? undefined : true));

async function killRunner(): Promise<void> {
  await margay.platform.get(RUNNER).kill('SIGKILL');
  await margay.platform.get(RUNNER).start();
}

/** A run whose model does not answer before `open`, and that is driven in a process of its own after two kills. */
async function suspicious(text = 'at last'): Promise<{ run: Run; open: () => void; child: number }> {
  let open = (): void => undefined;
  const gate = new Promise<void>((resolve) => (open = resolve));
  gates.push(open);
  margay.script(async () => {
    await gate;
    return answer(text);
  });
  margay.model.clear();
  const run = await (await margay.sessionWith({})).query('work');
  await asked(1);
  await killRunner();
  await asked(2);
  await killRunner();
  await asked(3);
  const child = await until('a process of its own is started', async () => (await childrenOf(run))[0]);
  return { run, open, child };
}

async function doneReasons(run: Run): Promise<unknown[]> {
  const frames = await margay.storedFrames(run.session.id);
  const events = frames.map((text) => JSON.parse(text) as { type: string; payload: Record<string, unknown> });
  return events.filter(({ type }) => type === 'completion').map(({ payload }) => payload['failure_reason'] ?? 'none');
}

describe('a run in a process of its own', () => {
  it('completes there, and the process ends: then, and not by a signal that is meant for its runner', async () => {
    const { run, open, child } = await suspicious();
    process.kill(child, 'SIGTERM');
    open();
    expect(await run.result()).toMatchObject({ status: 'completed', text: 'at last' });
    await gone(child);
  });

  it('is parked when that process dies, and nobody else is hit', async () => {
    const { run, child } = await suspicious();
    const runner = margay.platform.get(RUNNER).pid;
    process.kill(child, 'SIGKILL');
    expect(await run.result()).toMatchObject({ status: 'failed' });
    expect(await doneReasons(run)).toEqual(['poison']);
    expect(margay.platform.get(RUNNER).pid).toBe(runner);
  });

  it('does not outlive its runner, whose end is not its fault', async () => {
    const { run, open, child } = await suspicious();
    await margay.platform.get(RUNNER).kill('SIGKILL');
    await gone(child);
    await margay.platform.get(RUNNER).start();
    open();
    expect(await run.result()).toMatchObject({ status: 'completed' });
    expect(await childrenOf(run)).toHaveLength(2);
  });

  it('ends with its runner even where its event loop is stuck', async () => {
    const { run, open, child } = await suspicious(STUCK);
    open();
    await until('it is stuck', async () => {
      const log = await readFile(margay.platform.get(RUNNER).logFile, 'utf8');
      return log.includes('a fault point strikes') ? true : undefined;
    });
    await margay.platform.get(RUNNER).kill('SIGKILL');
    await gone(child);
    await margay.platform.get(RUNNER).start();
    await run.session.cancel();
    expect(await run.result()).toMatchObject({ status: 'canceled' });
  });

  it('is handed over at SIGTERM, which does not count', async () => {
    const { run, open, child } = await suspicious();
    for (let drains = 1; drains <= 2; drains++) {
      await margay.platform.restart(RUNNER);
      await asked(3 + drains);
    }
    await gone(child);
    open();
    expect(await run.result()).toMatchObject({ status: 'completed' });
    expect(await doneReasons(run)).toEqual(['none']);
  });
});

describe('a log that a newer Margay has written to', () => {
  it('ends its run as poison after a few tries', async () => {
    margay.script(byConversation(() => answer('done')));
    const session = await margay.sessionWith({});
    expect(await (await session.query('first')).result()).toMatchObject({ status: 'completed' });
    const mongo = new MongoConnection({ url: margay.storeUrl, database: margay.database, logger, name: 'e2e' });
    await mongo.ready(60_000);
    try {
      const commits = mongo.connection.collection<{ _id: string; v: number }>('commits');
      const first = `${session.id}.0000000001`;
      await commits.updateOne({ _id: first }, { $set: { v: 99 } });
      await session.query('second');
      const status = await until('the run is given up', async () => {
        const { status } = await session.summary();
        return status === 'running' ? undefined : status;
      });
      expect(status).toBe('failed');
      // Of another version it is read again.
      await commits.updateOne({ _id: first }, { $set: { v: 1 } });
      expect((await margay.storedFrames(session.id)).at(-1)).toContain('"failure_reason":"poison"');
    } finally {
      await mongo.close();
    }
  });
});

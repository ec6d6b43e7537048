import type { runnersPb } from '@margay/contracts';
import { createLogger } from '@margay/platform';
import { scriptedModel, toolDescriptor, type ScriptedAnswer } from '@margay/testing';
import { Registry } from 'prom-client';
import { RunnerMetrics } from '../observe/runner-metrics';
import { FakeExecutor, finished, started } from '../spec/fake-executor';
import { ScriptedSession } from '../spec/scripted-session';
import { RunHost } from './run-host';

const logger = createLogger({ level: 'off' });
const TOOL = toolDescriptor({ tool_id: 'read_file' });

let session: ScriptedSession;
let executor: FakeExecutor;
let host: RunHost;
let registry: Registry;
let freed: number;
let isCatalogueBroken: boolean;

beforeEach(async () => {
  session = await ScriptedSession.start();
});
afterEach(async () => {
  await host.drain();
  await session.stop();
});

function makeHost(script: (n: number) => ScriptedAnswer, slots = 500): void {
  executor = new FakeExecutor();
  registry = new Registry();
  freed = 0;
  isCatalogueBroken = false;
  host = new RunHost({
    slots,
    logger,
    ports: {
      runners: session.client,
      executor: executor.client,
      model: scriptedModel((_request, n) => script(n)),
      provider: 'scripted',
      metrics: new RunnerMetrics(registry),
      descriptors: () => (isCatalogueBroken ? Promise.reject(new Error('broken')) : Promise.resolve([TOOL])),
    },
    onFreed: () => (freed += 1),
  });
}

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  const endMs = performance.now() + 4_000;
  while (!(await holds()) && performance.now() < endMs) await new Promise((resolve) => setTimeout(resolve, 5));
  expect(await holds()).toBe(true);
}

const idle = () => until(() => host.heldRuns().length === 0 && session.openJournals === 0);
const stateOf = async ({ sessionId }: runnersPb.Assign) => (await session.head(sessionId)).run?.state ?? 'over';
const hangs = (): ScriptedAnswer => ({ text: 'so far', hangs: true });

it('drives a run to its end', async () => {
  makeHost((n) => (n === 1 ? { calls: [{ name: 'read_file' }] } : { text: 'done' }));
  executor.attempts = [[started(), finished('the file')]];
  const assign = await session.assign();
  host.onAssign(assign);
  expect(host.heldRuns()).toEqual([{ sessionId: assign.sessionId, runId: assign.runId, epoch: 2 }]);
  await idle();
  const types = (await session.events(assign.sessionId)).map(({ type }) => type);
  expect(types.slice(-2)).toEqual(['assistant', 'completion']);
  expect(types.filter((type) => type === 'tool_result')).toHaveLength(1);
});

it('gives one epoch one life, and a later epoch takes its place', async () => {
  makeHost(hangs);
  const first = await session.assign();
  host.onAssign(first);
  host.onAssign(first);
  await until(() => session.opens.length === 1);
  const second = await session.takeOver(first);
  host.onAssign(second);
  host.onAssign(first);
  expect(host.heldRuns()).toMatchObject([{ epoch: second.epoch }]);
  await until(() => session.openJournals === 1 && session.opens.length === 2);
});

it('stops a run that is revoked, at its epoch only', async () => {
  makeHost(hangs);
  const assign = await session.assign();
  host.onAssign(assign);
  host.onRevoke({ ...assign, epoch: 1, reason: '' });
  expect(host.heldRuns()).toHaveLength(1);
  host.onRevoke({ ...assign, reason: '' });
  await idle();
  expect(await stateOf(assign)).toBe('running');
});

it('stops all runs and writes nothing where nobody answers it any more', async () => {
  makeHost(hangs);
  const assigns = [await session.assign(), await session.assign()];
  for (const assign of assigns) host.onAssign(assign);
  await until(() => session.sent.length > 0);
  host.onSilence();
  await idle();
  expect(await Promise.all(assigns.map(stateOf))).toEqual(['running', 'running']);
});

it('gives all runs back when it is drained, and takes no more', async () => {
  makeHost(hangs);
  const assigns = [await session.assign(), await session.assign()];
  for (const assign of assigns) host.onAssign(assign);
  await until(() => session.sent.length >= 2);
  await host.drain();
  expect(await Promise.all(assigns.map(stateOf))).toEqual(['queued', 'queued']);
  expect(host.freeSlots()).toBe(0);
  host.onAssign(await session.assign());
  expect(host.heldRuns()).toEqual([]);
});

it('gives a run back, after a while, that fails outside the engine', async () => {
  makeHost(() => ({ text: 'done' }));
  isCatalogueBroken = true;
  const assign = await session.assign();
  host.onAssign(assign);
  await idle();
  expect(await stateOf(assign)).toBe('queued');
});

it('says that a slot is free once it was full, and never offers less than none', async () => {
  makeHost(hangs, 1);
  const assigns = [await session.assign(), await session.assign()];
  for (const assign of assigns) host.onAssign(assign);
  expect(host.freeSlots()).toBe(0);
  for (const assign of assigns) await session.cancel(assign.sessionId);
  await idle();
  expect(host.freeSlots()).toBe(1);
  expect(freed).toBe(1);
});

it('measures calls of models and tools, tokens and its own share of a step', async () => {
  makeHost((n) => (n === 1 ? { calls: [{ name: 'read_file' }] } : { text: 'done' }));
  executor.attempts = [[started(), finished('the file')]];
  host.onAssign(await session.assign());
  await idle();
  const text = await registry.metrics();
  for (const line of [
    'margay_model_call_duration_seconds_count{provider="scripted",model="model",outcome="ok"} 2',
    'margay_model_first_token_seconds_count{model="model"} 1',
    'margay_tokens_total{model="model",kind="input"} 200',
    'margay_tokens_total{model="model",kind="output"} 20',
    'margay_tool_call_duration_seconds_count{tool="read_file",effect="pure",status="ok"} 1',
    'margay_step_overhead_seconds_count 1',
  ])
    expect(text).toContain(line);
});

describe('after many runs', () => {
  it.each(['ended', 'cancelled', 'drained'])(
    'keeps no handle of 200 that were %s',
    async (end) => {
      makeHost(end === 'ended' ? () => ({ text: 'done' }) : hangs);
      const assigns = await Promise.all(Array.from({ length: 200 }, () => session.assign()));
      // The connection itself stays.
      host.onAssign(assigns[0] as runnersPb.Assign);
      await until(() => session.opens.length === 1);
      const before = resources();
      for (const assign of assigns.slice(1)) host.onAssign(assign);
      if (end !== 'ended') await until(() => session.openJournals === 200);
      if (end === 'cancelled') await Promise.all(assigns.map(({ sessionId }) => session.cancel(sessionId)));
      if (end === 'drained') await host.drain();
      await idle();
      const after = resources();
      for (const [name, count] of after)
        expect([name, count]).toEqual([name, Math.min(count, (before.get(name) ?? 0) + 2)]);
    },
    30_000,
  );
});

/** What keeps the process alive, counted by kind. */
function resources(): Map<string, number> {
  const counts = new Map<string, number>();
  for (const name of process.getActiveResourcesInfo()) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

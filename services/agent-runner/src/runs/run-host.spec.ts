import type { runnersPb } from '@margay/contracts';
import { FailedPreconditionError, InternalError, UnavailableError } from '@margay/errors';
import { createLogger } from '@margay/platform';
import { scriptedModel, toolDescriptor, type ScriptedAnswer } from '@margay/testing';
import { Registry } from 'prom-client';
import { RunnerMetrics } from '../observe/runner-metrics';
import { FakeExecutor, finished, started } from '../spec/fake-executor';
import { ScriptedSession } from '../spec/scripted-session';
import type { DrivenRun, RunEnd, RunLife } from './run-end';
import { RunHost } from './run-host';

const logger = createLogger({ level: 'off' });
const TOOL = toolDescriptor({ tool_id: 'read_file' });

let session: ScriptedSession;
let executor: FakeExecutor;
let host: RunHost;
let registry: Registry;
let changes: number;
let catalogueFault: Error | undefined;
/** Runs that were given to processes of their own, and what ends them. */
let isolated: { life: RunLife; end: (end: RunEnd) => void; told: string[] }[];

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
  changes = 0;
  catalogueFault = undefined;
  isolated = [];
  host = new RunHost({
    slots,
    logger,
    ports: {
      runners: session.client,
      executor: executor.client,
      model: scriptedModel((_request, n) => script(n)),
      provider: 'scripted',
      metrics: new RunnerMetrics(registry),
      descriptors: () => (catalogueFault ? Promise.reject(catalogueFault) : Promise.resolve([TOOL])),
    },
    isolate,
    onChanged: () => (changes += 1),
  });
}

function isolate(life: RunLife): DrivenRun {
  const { sessionId, runId, epoch } = life.assign;
  const told: string[] = [];
  const driven = new Promise<RunEnd>((end) => isolated.push({ life, end, told }));
  return {
    run: { sessionId, runId, epoch },
    renew: (grant) => void told.push(grant),
    stop: (cause) => {
      told.push(cause);
      isolated.find((each) => each.life === life)?.end({ kind: 'left' });
    },
    drive: () => driven,
  };
}

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  const endMs = performance.now() + 60_000;
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

describe('a run that fails outside the engine', () => {
  it('goes back after a while, and that counts', async () => {
    makeHost(() => ({ text: 'done' }));
    catalogueFault = new Error('broken');
    const assign = await session.assign();
    host.onAssign(assign);
    await idle();
    expect((await session.head(assign.sessionId)).run).toMatchObject({ state: 'queued', losses: { suspicious: 1 } });
    expect([host.lostRuns(), changes]).toEqual([[], 0]);
  });

  it('goes back uncounted where what it needs is away', async () => {
    makeHost(() => ({ text: 'done' }));
    catalogueFault = new UnavailableError('away', 'the tools are away');
    const assign = await session.assign();
    host.onAssign(assign);
    await idle();
    const { run } = await session.head(assign.sessionId);
    expect(run?.state).toBe('queued');
    expect(run).not.toHaveProperty('losses');
  });

  it('stays longer each time, and is handed over at once when the runner is drained', async () => {
    makeHost(() => ({ text: 'done' }));
    catalogueFault = new Error('broken');
    const first = await session.assign();
    host.onAssign(first);
    await idle();
    const startedMs = performance.now();
    host.onAssign(await session.claim(await session.head(first.sessionId)));
    await idle();
    expect(performance.now() - startedMs).toBeGreaterThanOrEqual(1_990);
    host.onAssign(await session.claim(await session.head(first.sessionId)));
    await host.drain();
    expect(await stateOf(first)).toBe('queued');
  });

  it.each([
    ['the version of its log is not known', new FailedPreconditionError('commit_version', 'version 99 is not known')],
    ['its log fails to open again and again', new InternalError('internal', 'the call failed')],
  ])('is reported as lost where %s', async (_, refusal) => {
    makeHost(() => ({ text: 'done' }));
    session.refusal = refusal;
    const { sessionId, runId, epoch, ...rest } = await session.assign();
    host.onAssign({ sessionId, runId, epoch, ...rest });
    await until(() => host.lostRuns().length === 1);
    const detail = `it failed: ${refusal.message}`;
    expect(host.lostRuns()).toEqual([{ sessionId, runId, epoch, detail: expect.stringContaining(detail) }]);
    expect([host.heldRuns(), changes]).toEqual([[{ sessionId, runId, epoch }], 1]);
    host.onRevoke({ sessionId, runId, epoch, reason: '' });
    expect([host.heldRuns(), host.lostRuns()]).toEqual([[], []]);
  });
});

describe('a run whose earlier owners died', () => {
  const alone = async () => ({ ...(await session.assign()), isolated: true });
  const detail = 'its process was aborted';

  it('is driven in a process of its own, held and renewed like any other', async () => {
    makeHost(hangs);
    const assign = await alone();
    host.onAssign(assign);
    host.onGrant({ ...assign, grant: 'newer' });
    expect(host.heldRuns()).toEqual([{ sessionId: assign.sessionId, runId: assign.runId, epoch: assign.epoch }]);
    expect([isolated[0]?.life.failures, isolated[0]?.told]).toEqual([0, ['newer']]);
    isolated[0]?.end({ kind: 'left' });
    await idle();
    expect([host.lostRuns(), session.opens]).toEqual([[], []]);
  });

  it('stays listed and is reported when that process dies, until the session service revokes it', async () => {
    makeHost(hangs, 1);
    const { sessionId, runId, epoch, ...rest } = await alone();
    host.onAssign({ sessionId, runId, epoch, ...rest });
    isolated[0]?.end({ kind: 'lost', detail });
    await until(() => changes === 1);
    expect(host.lostRuns()).toEqual([{ sessionId, runId, epoch, detail }]);
    expect([host.heldRuns(), host.freeSlots()]).toEqual([[{ sessionId, runId, epoch }], 1]);
    host.onRevoke({ sessionId, runId, epoch: epoch - 1, reason: '' });
    expect(host.lostRuns()).toHaveLength(1);
    host.onRevoke({ sessionId, runId, epoch, reason: '' });
    expect([host.heldRuns(), host.lostRuns()]).toEqual([[], []]);
  });

  it('is reported no more once it comes here again', async () => {
    makeHost(hangs);
    const assign = await alone();
    host.onAssign(assign);
    isolated[0]?.end({ kind: 'lost', detail });
    await until(() => changes === 1);
    host.onAssign({ ...assign, epoch: assign.epoch + 2 });
    expect([host.lostRuns(), host.heldRuns()]).toEqual([[], [expect.objectContaining({ epoch: assign.epoch + 2 })]]);
    expect(isolated[1]?.life.failures).toBe(1);
  });

  it('is told when the runner is drained', async () => {
    makeHost(hangs);
    host.onAssign(await alone());
    await host.drain();
    expect([isolated[0]?.told, host.heldRuns()]).toEqual([['drained'], []]);
  });
});

it('says that a slot is free once it was full, and never offers less than none', async () => {
  makeHost(hangs, 1);
  const assigns = [await session.assign(), await session.assign()];
  for (const assign of assigns) host.onAssign(assign);
  expect(host.freeSlots()).toBe(0);
  for (const assign of assigns) await session.cancel(assign.sessionId);
  await idle();
  expect(host.freeSlots()).toBe(1);
  expect(changes).toBe(1);
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
  it.each(['ended', 'cancelled', 'drained'])('keeps no handle of 200 that were %s', async (end) => {
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
    const isKept = ([name, count]: [string, number]) => count > (before.get(name) ?? 0) + 2;
    // What is closed goes in its own time.
    await until(() => ![...resources()].some(isKept));
  });
});

/** What keeps the process alive, counted by kind. */
function resources(): Map<string, number> {
  const counts = new Map<string, number>();
  for (const name of process.getActiveResourcesInfo()) counts.set(name, (counts.get(name) ?? 0) + 1);
  return counts;
}

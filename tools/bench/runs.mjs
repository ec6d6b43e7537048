// How many runs one runner holds at once, what each costs it, and what durability costs per step, hop by hop.
import { setTimeout as sleep } from 'node:timers/promises';
import { startBenchModel } from './shared/bench-model.mjs';
import { startBenchPlatform } from './shared/bench-platform.mjs';
import { benchFolder, openBenchServers } from './shared/bench-servers.mjs';
import { atOnce } from './shared/at-once.mjs';
import { httpClient } from './shared/http-client.mjs';
import { newSessions } from './shared/new-sessions.mjs';
import { CpuMeter, memoryOf } from './shared/processes.mjs';
import { measureFloor } from './floor.mjs';
import { percentiles } from './shared/report.mjs';
import { commitsOfRun } from './steps/engine-run.mjs';
import { measurePlatform } from './steps/platform-run.mjs';
import { measureInserts } from './steps/store-commits.mjs';

const RUNS = 500;
/** Longer than it takes to start them all: every run waits for its model at the same moment. */
const MODEL_MS = 60_000;
const IDLE_MS = 10_000;
const LIMIT_MS = 240_000;
const CONNECTIONS = 64;

export async function run({ report, closing, progress, isQuick }) {
  const directory = await benchFolder(closing);
  const model = await startBenchModel(directory);
  closing.add(() => model.stop());
  const servers = await openBenchServers({ directory, closing, progress });
  progress('starting the platform');
  const bench = await startBenchPlatform({ directory, closing, servers, model, env: { MARGAY_MODEL: 'r0p1' } });
  const http = httpClient(bench.platform.gatewayUrl, bench.platform.apiKey, CONNECTIONS);
  closing.add(() => http.close());
  await reportHops({ report, progress, bench, servers, model, isQuick });
  await reportHeld({ report, progress, bench, servers, model, http, runs: isQuick ? 50 : RUNS, modelMs: isQuick ? 8_000 : MODEL_MS }); // prettier-ignore
}

/** One session alone: the time between two model calls, and the parts it consists of. */
async function reportHops({ report, progress, bench, servers, model, isQuick }) {
  const shape = { rounds: isQuick ? 20 : 100, parallel: 1 };
  progress(`durable overhead: ${shape.rounds} steps`);
  const { insertsMs } = await measureInserts(servers.connection, await commitsOfRun(model, 'r100p1'));
  const floor = await measureFloor({ baseUrl: model.baseUrl, ...shape, repeat: 1 });
  const { gapsMs, phases, insertMs } = await measurePlatform({ bench, servers, model, ...shape, repeat: 1 });
  const commit = percentiles(insertsMs);
  const gap = percentiles(gapsMs);
  report.section('durable overhead of a step: from a model answer to the next request');
  report.milliseconds('gap', gapsMs, { baseline: { name: 'store commit', ...commit } });
  report.figure('raw client, CPU per step', floor.cpuMsPerStep, { unit: 'ms' });
  const share = (name, ms) =>
    report.figure(`share of the gap: ${name}`, (100 * ms) / (phases.answerToA + phases.aToNext), { unit: '%' });
  share('answer → commit A built (runner → session, and the B before it)', phases.answerToA);
  share('A stored (an insert as session sees it)', insertMs);
  share('A stored → next request (session → runner → executor → sandbox and back)', phases.aToNext - insertMs);
  report.note(`gap p50 ${gap.p50.toFixed(2)} ms; parts are medians of their own, by wall clocks of one machine`);
}

/** Runs that wait for their model, all at once on one runner. */
async function reportHeld({ report, progress, bench, servers, model, http, runs, modelMs }) {
  await model.configure({ latencyMs: modelMs });
  const runner = bench.pids['agent-runner'];
  const emptyMb = memoryOf(runner).nowMb;
  progress(`${runs} runs at once`);
  const sessions = await newSessions(http, runs);
  const meter = new CpuMeter({ ...bench.pids, store: servers.store.pid });
  const startMs = performance.now();
  const accepted = [];
  await atOnce(32, runs, async (index) => {
    const { status, text, ms } = await http.call('POST', `/api/sessions/${sessions[index]}/query`, { query: 'go' });
    if (status !== 202) throw new Error(`no run: ${status} ${text}`);
    accepted.push(ms);
  });
  await until(async () => (await demandOf(bench.platform)).running >= runs, 'the runs were not all on the runner');
  const startedMs = performance.now() - startMs;
  const starting = meter.read();
  const heldMb = memoryOf(runner).nowMb;
  meter.restart();
  await sleep(IDLE_MS);
  const idle = meter.read();
  const { demand } = await demandOf(bench.platform);
  if (demand < runs) throw new Error(`${runs - demand} runs ended before they were counted: raise the model's pause`);
  report.section(`${runs} runs at once on one runner, each waiting for its model`);
  report.milliseconds('POST query → 202', accepted);
  report.figure('runs started per second', runs / (startedMs / 1_000));
  report.figure('memory of the runner', heldMb, { unit: 'MB', aim: { atMost: 1_024 } });
  report.figure('memory per run', ((heldMb - emptyMb) * 1_024) / runs, { unit: 'KB' });
  for (const [name, ms] of Object.entries(starting)) report.figure(`CPU per run started: ${name}`, ms / runs, { unit: 'ms' }); // prettier-ignore
  for (const [name, ms] of Object.entries(idle)) report.figure(`CPU while they wait: ${name}`, (100 * ms) / IDLE_MS, { unit: '% of a core' }); // prettier-ignore
  progress('their models answer');
  await until(async () => (await demandOf(bench.platform)).demand === 0, 'the runs were not over');
  report.figure('memory of the runner at most', memoryOf(runner).peakMb, { unit: 'MB', aim: { atMost: 1_024 } });
  report.note('runs without tools: a sandbox for each would cost its own process, not the runner');
}

async function demandOf(platform) {
  const response = await fetch(`${platform.managementUrl('control')}/internal/demand/default`);
  return response.json();
}

async function until(holds, otherwise) {
  const endMs = performance.now() + LIMIT_MS;
  while (!(await holds())) {
    if (performance.now() > endMs) throw new Error(otherwise);
    await sleep(100);
  }
}

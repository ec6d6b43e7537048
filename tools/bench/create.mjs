// Durable run creation: `POST query` until 202, with nobody to execute the run and with a runner that works on them.
import { setTimeout as sleep } from 'node:timers/promises';
import { atOnce } from './shared/at-once.mjs';
import { startBenchModel } from './shared/bench-model.mjs';
import { startBenchPlatform } from './shared/bench-platform.mjs';
import { benchFolder, openBenchServers } from './shared/bench-servers.mjs';
import { httpClient } from './shared/http-client.mjs';
import { CpuMeter } from './shared/processes.mjs';
import { prepareProfile } from './shared/profile.mjs';
import { newSessions } from './shared/new-sessions.mjs';
import { percentiles } from './shared/report.mjs';
import { operationsOf, since } from './shared/store-operations.mjs';
import { commitsOfRun } from './steps/engine-run.mjs';
import { measureInserts } from './steps/store-commits.mjs';

const CONCURRENCIES = [1, 8, 32];
const PER_SECOND = 200;
const MAX_CONNECTIONS = 64;
const IDLE_TURNS = 1_200;

export async function run({ report, closing, progress, isQuick, isProfiled }) {
  const directory = await benchFolder(closing);
  const model = await startBenchModel(directory);
  closing.add(() => model.stop());
  const servers = await openBenchServers({ directory, closing, progress });
  const { insertsMs } = await measureInserts(servers.connection, await commitsOfRun(model, 'r100p1'));
  progress('starting the platform');
  const profile = isProfiled ? await prepareProfile(directory) : undefined;
  const env = { MARGAY_MODEL: 'r0p1n1', ...profile?.env };
  const bench = await startBenchPlatform({ directory, closing, servers, model, env });
  const http = httpClient(bench.platform.gatewayUrl, bench.platform.apiKey, MAX_CONNECTIONS);
  closing.add(() => http.close());
  const context = { report, progress, bench, servers, http, isQuick, commit: percentiles(insertsMs) };

  await reportFloor(context, insertsMs);
  profile?.mark();
  await measureAll(context, 'a runner answers at once');
  profile?.mark();
  // Last, since what is queued now would be executed later.
  await bench.platform.get('agent-runner').stop();
  await measureAll(context, 'no runner: acceptance alone');
  if (profile) {
    await bench.stop();
    await profile.report(report, bench.pids);
  }
}

async function reportFloor({ report, http }, insertsMs) {
  const times = [];
  for (let index = 0; index < 300; index += 1) times.push((await http.call('GET', '/healthz')).ms);
  report.section('floors of this run');
  report.milliseconds('one commit in the store', insertsMs);
  report.milliseconds('GET /healthz of the gateway', times.slice(100));
}

async function measureAll(context, what) {
  const { progress, isQuick } = context;
  const creations = isQuick ? 60 : 300;
  await createRuns(context, await newSessions(context.http, 50), 8);
  for (const concurrency of CONCURRENCIES) {
    progress(`${what}: ${concurrency} at once`);
    const sessions = await newSessions(context.http, creations);
    await measure(context, `${what}, ${concurrency} at once`, creations, (ids) => createRuns(context, ids, concurrency), sessions); // prettier-ignore
  }
  const paced = PER_SECOND * (isQuick ? 2 : 5);
  progress(`${what}: ${PER_SECOND} per second`);
  const sessions = await newSessions(context.http, paced);
  const aims = { p50: { atMost: 10 }, p99: { atMost: 50 } };
  await measure(context, `${what}, ${PER_SECOND} per second`, paced, (ids) => createPaced(context, ids), sessions, aims); // prettier-ignore
}

async function measure({ report, bench, servers, commit }, title, count, create, sessions, aims) {
  const { pids, platform } = bench;
  const hasRunner = platform.get('agent-runner').pid !== undefined;
  const running = hasRunner ? pids : { control: pids.control };
  const operations = await operationsOf(servers.connection);
  const meter = new CpuMeter(running);
  const startMs = performance.now();
  const times = await create(sessions);
  const seconds = (performance.now() - startMs) / 1_000;
  if (hasRunner) await untilIdle(platform);
  const cpu = meter.read();
  const cpuSeconds = Object.values(cpu).reduce((sum, ms) => sum + ms, 0) / 1_000;
  report.section(title);
  report.milliseconds('POST query → 202', times, { baseline: { name: 'store commit', ...commit }, ...(aims && { aims }) }); // prettier-ignore
  report.figure('creations per second', count / seconds);
  report.figure('creations per second and core of ours', count / cpuSeconds, { aim: { atLeast: 60 } });
  const asked = since(operations, await operationsOf(servers.connection));
  for (const [name, number] of Object.entries(asked)) report.figure(`store: ${name} per creation`, number / count);
  for (const [name, ms] of Object.entries(cpu))
    report.figure(`CPU of ${name} per creation`, ms / count, { unit: 'ms' });
}

/** Runs accepted so far are over: their whole cost is counted, and none of it for the next figure. */
async function untilIdle(platform) {
  for (let turn = 0; turn < IDLE_TURNS; turn += 1) {
    const response = await fetch(`${platform.managementUrl('control')}/internal/demand/default`);
    if ((await response.json()).demand === 0) return;
    await sleep(100);
  }
  throw new Error('the runs were not over in two minutes');
}

async function createRun({ http }, sessionId) {
  const { status, text, ms } = await http.call('POST', `/api/sessions/${sessionId}/query`, { query: 'go' });
  if (status !== 202) throw new Error(`no run in session ${sessionId}: ${status} ${text}`);
  return ms;
}

async function createRuns(context, sessionIds, concurrency) {
  const times = [];
  await atOnce(concurrency, sessionIds.length, async (index) => {
    times.push(await createRun(context, sessionIds[index]));
  });
  return times;
}

/** Sent on time, whether or not earlier ones are answered. */
async function createPaced(context, sessionIds) {
  const startMs = performance.now();
  const created = [];
  for (const [index, sessionId] of sessionIds.entries()) {
    const waitMs = startMs + (index * 1000) / PER_SECOND - performance.now();
    if (waitMs > 1) await sleep(waitMs);
    created.push(createRun(context, sessionId));
  }
  return Promise.all(created);
}

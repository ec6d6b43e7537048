// The same work through the whole platform: REST in, SSE out, real sandboxes, everything stored.
import { performance } from 'node:perf_hooks';
import { gapsOf } from '../shared/bench-model.mjs';
import { CpuMeter } from '../shared/processes.mjs';
import { medianBy } from '../shared/report.mjs';
import { operationsOf, since } from '../shared/store-operations.mjs';
import { insertsOf } from './metrics.mjs';
import { phasesOf } from './phases.mjs';
import { storedSize } from './store-commits.mjs';

/** A run that takes longer is stuck: that is not what is measured here. */
const RUN_LIMIT_MS = 180_000;

/** A session whose sandbox runs and whose first run is over. */
async function warmSession(bench) {
  const session = await bench.client.sessions.create({ cwd: await bench.newWorkspace() });
  await complete(session, 'r1p1');
  return session;
}

async function complete(session, shape) {
  const run = await session.query('go', { model: shape });
  const result = await run.result({ signal: AbortSignal.timeout(RUN_LIMIT_MS) });
  if (result.status !== 'completed') throw new Error(`run ${run.id} ended ${JSON.stringify(result)}`);
  return run;
}

function meterOf(bench, servers, model) {
  const pids = { ...bench.pids, store: servers.store.pid, nats: servers.nats.pid, model: model.pid };
  return new CpuMeter(pids, { sandboxesOf: 'control' });
}

/** Runs of warm sessions, one after the other, each followed by one client; the one with the median CPU time. */
export async function measurePlatform({ bench, servers, model, rounds, parallel, repeat }) {
  const shape = `r${rounds}p${parallel}`;
  const steps = rounds + 1;
  const turns = [];
  await complete(await warmSession(bench), shape);
  for (let turn = 0; turn < repeat; turn += 1) {
    const session = await warmSession(bench);
    const before = await storedSize(servers.connection, session.id, 0);
    await model.reset();
    const inserts = await insertsOf(bench.platform);
    const operations = await operationsOf(servers.connection);
    const meter = meterOf(bench, servers, model);
    const startMs = performance.now();
    const run = await complete(session, shape);
    const wallMs = performance.now() - startMs;
    const cpu = meter.read();
    const operationsSince = since(operations, await operationsOf(servers.connection));
    const stats = await model.stats();
    if (stats.requests !== steps) throw new Error(`run ${run.id} asked ${stats.requests} times in ${steps} steps`);
    const stored = await storedSize(servers.connection, session.id, before.commits);
    turns.push({
      steps,
      wallMs,
      cpu,
      ours: oursOf(cpu),
      gapsMs: gapsOf(stats),
      stored,
      operations: operationsSince,
      insertMs: (await insertsOf(bench.platform)).meanSince(inserts),
      phases: await phasesOf(servers.connection, session.id, before.commits, stats.times_us),
    });
  }
  return { ...medianBy(turns, ({ ours }) => ours), gapsMs: turns.flatMap(({ gapsMs }) => gapsMs) };
}

/** CPU of all processes of ours. */
const oursOf = (cpu) =>
  Object.entries(cpu).reduce((sum, [name, ms]) => sum + (['store', 'nats', 'model'].includes(name) ? 0 : ms), 0);

/** Many warm sessions at once. */
export async function measurePlatformLoad({ bench, servers, model, rounds, parallel, sessions }) {
  const warm = [];
  for (let index = 0; index < sessions; index += 1) warm.push(await warmSession(bench));
  const meter = meterOf(bench, servers, model);
  const startMs = performance.now();
  await Promise.all(warm.map((session) => complete(session, `r${rounds}p${parallel}`)));
  const wallMs = performance.now() - startMs;
  const cpu = meter.read();
  const steps = (rounds + 1) * sessions;
  return { steps, stepsPerSecond: (steps / wallMs) * 1000, cpu, ours: oursOf(cpu) };
}

// How many streams a gateway carries, what each costs it, and how soon all listeners of a session have an event. The
// gateway is a process of its own, and so are the clients.
import { setTimeout as sleep } from 'node:timers/promises';
import { startBenchPlatform } from './shared/bench-platform.mjs';
import { benchFolder, openBenchServers } from './shared/bench-servers.mjs';
import { CpuMeter, memoryOf } from './shared/processes.mjs';
import { percentiles } from './shared/report.mjs';
import { startClients } from './stream/clients.mjs';
import { Writer } from './stream/writer.mjs';

const STREAMS = 10_000;
const STEPS = 4;
const SHARED_SESSIONS = 100;
const SETTLE_MS = 3_000;
const IDLE_SECONDS = 10;
const EVENTS = 300;

export async function run({ report, closing, progress, isQuick }) {
  const directory = await benchFolder(closing);
  const servers = await openBenchServers({ directory, closing, progress });
  const streams = isQuick ? STREAMS / 10 : STREAMS;
  const nobody = { baseUrl: 'http://127.0.0.1:9/v1' };
  // The writer does not come back to a server that closes its connection.
  const env = { MARGAY_GRPC_CONNECTION_AGE_SECONDS: '3600', MARGAY_MAX_CONCURRENT_STREAMS: String(streams + 1_000) };
  const start = async () => {
    progress('starting the platform, one process per service');
    const bench = await startBenchPlatform({ directory, closing, servers, model: nobody, mode: 'split', runners: 0, env }); // prettier-ignore
    const clients = startClients(bench, new URL('./streams/readers.mjs', import.meta.url));
    closing.add(() => clients.stop());
    return { report, progress, bench, clients };
  };

  const shared = await start();
  const writer = await Writer.start(shared.bench);
  closing.add(() => writer.stop());
  const sessions = await Promise.all(Array.from({ length: SHARED_SESSIONS }, () => shared.bench.client.sessions.create({}))); // prettier-ignore
  const journals = await Promise.all(sessions.map((session) => writer.take(session)));
  const ids = journals.map(({ sessionId }) => sessionId);
  await measureOpen(shared, 'sharing 100 sessions', Array.from({ length: streams }, (_, index) => ids[index % ids.length])); // prettier-ignore
  await measureFanOut(shared, journals, streams / ids.length);
  await shared.clients.stop();
  await writer.stop();
  await shared.bench.stop();

  // A gateway that has not had these streams before: what it once needed it keeps.
  const alone = await start();
  await measureOpen(alone, 'each on a session of its own', await runningSessions(alone.bench, streams / 2));
}

/** Sessions whose run waits for a runner: their streams stay open. */
async function runningSessions({ client }, count) {
  const ids = [];
  while (ids.length < count) {
    const sessions = await Promise.all(Array.from({ length: 50 }, () => client.sessions.create({})));
    await Promise.all(sessions.map((session) => session.query('go')));
    ids.push(...sessions.map(({ id }) => id));
  }
  return ids;
}

/** Memory by steps, the first of which is not counted: with it comes what the process loads and grows to only once. */
async function measureOpen({ report, progress, clients, bench }, what, sessionIds) {
  const perStep = Math.floor(sessionIds.length / STEPS);
  progress(`${sessionIds.length} streams ${what}`);
  const memory = [];
  const openedMs = [];
  for (let step = 0; step < STEPS; step += 1) {
    const startMs = performance.now();
    await clients.open(sessionIds.slice(step * perStep, (step + 1) * perStep));
    openedMs.push(performance.now() - startMs);
    await sleep(SETTLE_MS);
    memory.push(memoryOf(bench.pids.gateway).nowMb);
  }
  const meter = new CpuMeter(bench.pids);
  await sleep(IDLE_SECONDS * 1_000);
  const cpu = meter.read();
  const { open, broken } = await clients.collect();
  report.section(`${sessionIds.length} streams ${what}`);
  report.figure('open streams', open, { aim: { atLeast: sessionIds.length } });
  report.figure('broken streams', broken, { aim: { atMost: 0 } });
  const perStreamKb = ((memory.at(-1) - memory[0]) * 1024) / (perStep * (STEPS - 1));
  report.figure('memory of the gateway per stream', perStreamKb, { unit: 'KB', aim: { atMost: 30 } });
  report.figure('memory of the gateway with all', memory.at(-1), { unit: 'MB' });
  report.figure('opened per second', (sessionIds.length * 1_000) / openedMs.reduce((sum, ms) => sum + ms, 0));
  report.figure('CPU of the idle gateway', cpu.gateway / (IDLE_SECONDS * 10), { unit: '%' });
  report.note(`memory by step: ${memory.map((mb) => `${Math.round(mb)} MB`).join(', ')}`);
}

/** One event at a time, each to all listeners of its session, while all other streams are idle. */
async function measureFanOut({ report, progress, clients, bench }, journals, listeners) {
  progress(`${EVENTS} events to ${listeners} listeners each`);
  await clients.reset();
  const meter = new CpuMeter(bench.pids);
  const written = new Map();
  for (let index = 0; index < EVENTS; index += 1) {
    const journal = journals[index % journals.length];
    const commit = await journal.write(1);
    written.set(`${journal.sessionId} ${commit.seq}`, commit);
    await sleep(10);
  }
  await sleep(500);
  const cpu = meter.read();
  const { arrivals } = await clients.collect();
  const own = arrivals.filter(([key]) => written.has(key));
  const delivered = own.reduce((sum, [, count]) => sum + count, 0);
  const after = (pick) => own.map((arrival) => (pick(arrival) - written.get(arrival[0]).ackUs) / 1000);
  const commitsMs = [...written.values()].map(({ sentUs, ackUs }) => (ackUs - sentUs) / 1000);
  report.section(`an event to the ${listeners} listeners of its session`);
  report.figure('deliveries', delivered, { aim: { atLeast: EVENTS * listeners } });
  const baseline = { name: 'commit round trip', ...percentiles(commitsMs) };
  report.milliseconds('acknowledged → first listener', after(([, , firstUs]) => firstUs), { baseline, aims: { p50: { atMost: 3 }, p99: { atMost: 25 } } }); // prettier-ignore
  report.milliseconds(
    'acknowledged → last listener',
    after(([, , , lastUs]) => lastUs),
    { baseline },
  );
  report.figure('CPU of the gateway per delivery', (cpu.gateway * 1000) / delivered, { unit: 'µs' });
}

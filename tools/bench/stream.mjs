// From a stored event to the clients that follow its session. Every service is a process of its own here, so that the
// gateway's cost is seen alone; a writer plays the runner, so that events come as they are told to.
import { setTimeout as sleep } from 'node:timers/promises';
import { startBenchPlatform } from './shared/bench-platform.mjs';
import { benchFolder, openBenchServers } from './shared/bench-servers.mjs';
import { CpuMeter, memoryOf } from './shared/processes.mjs';
import { percentiles } from './shared/report.mjs';
import { startClients } from './stream/clients.mjs';
import { Writer } from './stream/writer.mjs';

const SESSIONS = 20;
const EVENTS_PER_SECOND = 2_000;
const PACED_BATCH = 5;
const FULL_BATCH = 20;
const IDLE_SECONDS = 5;

export async function run({ report, closing, progress, isQuick }) {
  const directory = await benchFolder(closing);
  const servers = await openBenchServers({ directory, closing, progress });
  progress('starting the platform, one process per service');
  const nobody = { baseUrl: 'http://127.0.0.1:9/v1' };
  const bench = await startBenchPlatform({ directory, closing, servers, model: nobody, mode: 'split', runners: 0 });
  const clients = startClients(bench);
  closing.add(() => clients.stop());
  const writer = await Writer.start(bench);
  closing.add(() => writer.stop());
  const journals = await Promise.all(Array.from({ length: SESSIONS }, () => openRun(bench, writer)));
  const context = { report, progress, bench, clients, writer, journals, seconds: isQuick ? 2 : 5 };

  // First, while the sessions have next to no events to replay.
  await measureIdle(context, isQuick ? 100 : 500);
  await warmUp(context);
  await measurePaced(context);
  for (const listeners of [1, 100]) await measureFull(context, listeners);
  await measureEnd(context, isQuick ? 10 : 50);
}

async function openRun(bench, writer) {
  return writer.take(await bench.client.sessions.create({}));
}

async function warmUp({ clients, journals }) {
  await clients.open(journals.map(({ sessionId }) => sessionId));
  await writeFor(journals, 1_000, FULL_BATCH);
  await clients.close();
}

/** Each session writes as fast as its commits are acknowledged. */
async function writeFor(journals, ms, batch) {
  const until = performance.now() + ms;
  const commits = await Promise.all(
    journals.map(async (journal) => {
      const own = [];
      while (performance.now() < until) own.push({ sessionId: journal.sessionId, ...(await journal.write(batch)) });
      return own;
    }),
  );
  return commits.flat();
}

/** Commits at a steady pace over all sessions, whether or not earlier ones are acknowledged. */
async function writePaced(journals, { seconds, eventsPerSecond, batch }) {
  const total = Math.round((seconds * eventsPerSecond) / batch);
  const startMs = performance.now();
  const sent = [];
  for (let index = 0; index < total; index += 1) {
    const waitMs = startMs + (index * batch * 1000) / eventsPerSecond - performance.now();
    if (waitMs > 1) await sleep(waitMs);
    const journal = journals[index % journals.length];
    sent.push(journal.write(batch).then((commit) => ({ sessionId: journal.sessionId, ...commit })));
  }
  const commits = await Promise.all(sent);
  return { commits, eventsPerSecond: (total * batch * 1000) / (performance.now() - startMs) };
}

/** Waits until the clients have everything, 5 s at most. */
async function collectAll(clients, expected) {
  for (let turn = 0; ; turn += 1) {
    const collected = await clients.collect();
    if (collected.delivered >= expected || turn === 100) return collected;
    await sleep(50);
  }
}

async function measurePaced({ report, progress, clients, journals, seconds, bench }) {
  const full = await writeFor(journals, 1_000, PACED_BATCH);
  const eventsPerSecond = Math.min(EVENTS_PER_SECOND, Math.round(full.length * PACED_BATCH * 0.6));
  progress(`${eventsPerSecond} events per second over ${SESSIONS} sessions, one listener each`);
  await clients.open(journals.map(({ sessionId }) => sessionId));
  await clients.reset();
  const meter = new CpuMeter(bench.pids);
  const written = await writePaced(journals, { seconds, eventsPerSecond, batch: PACED_BATCH });
  const { arrivals, delivered } = await collectAll(clients, written.commits.length * PACED_BATCH);
  const cpu = meter.read();
  await clients.close();
  const acknowledged = new Map(written.commits.map((commit) => [`${commit.sessionId} ${commit.seq}`, commit]));
  const latencies = arrivals.flatMap(([sessionId, seq, arrivedUs]) => {
    const commit = acknowledged.get(`${sessionId} ${seq}`);
    return commit ? [(arrivedUs - commit.ackUs) / 1000] : [];
  });
  const commitsMs = written.commits.map(({ sentUs, ackUs }) => (ackUs - sentUs) / 1000);
  report.section(`stored event → SSE client, ${SESSIONS} sessions with one listener each`);
  report.figure('events per second', written.eventsPerSecond, { aim: { atLeast: EVENTS_PER_SECOND * 0.95 } });
  report.milliseconds('acknowledged → received', latencies, {
    baseline: { name: 'commit round trip', ...percentiles(commitsMs) },
    aims: { p50: { atMost: 3 }, p99: { atMost: 25 } },
  });
  report.milliseconds('commit round trip', commitsMs);
  reportCpu(report, cpu, delivered, 'event');
  if (delivered !== written.commits.length * PACED_BATCH) report.note(`${delivered} of ${written.commits.length * PACED_BATCH} events arrived`); // prettier-ignore
  report.note('an event is published before its writer is answered: below zero means received before acknowledged');
}

async function measureFull({ report, progress, clients, journals, seconds, bench }, listeners) {
  progress(`as fast as commits are acknowledged, ${listeners} listener(s)`);
  await clients.open(Array.from({ length: listeners }, (_, index) => journals[index % journals.length].sessionId));
  await clients.reset();
  const meter = new CpuMeter(bench.pids);
  const startMs = performance.now();
  const commits = await writeFor(journals, seconds * 1_000, FULL_BATCH);
  const stored = commits.length * FULL_BATCH;
  const expected = listenedEvents(commits, journals, listeners);
  const { delivered } = await collectAll(clients, expected);
  const wallSeconds = (performance.now() - startMs) / 1_000;
  const cpu = meter.read();
  await clients.close();
  report.section(`as fast as it goes, ${listeners} listener${listeners === 1 ? '' : 's'}`);
  report.figure('events stored per second', stored / wallSeconds);
  report.figure('events delivered per second', delivered / wallSeconds);
  if (delivered !== expected) report.note(`${delivered} of ${expected} deliveries arrived`);
  reportCpu(report, cpu, listeners === 1 ? stored : delivered, listeners === 1 ? 'stored event' : 'delivery');
}

/** How often the listeners must hear an event of these commits. */
function listenedEvents(commits, journals, listeners) {
  const perSession = new Map(journals.map(({ sessionId }, index) => [sessionId, Math.ceil((listeners - index) / journals.length)])); // prettier-ignore
  return commits.reduce((sum, { sessionId }) => sum + FULL_BATCH * Math.max(0, perSession.get(sessionId)), 0);
}

function reportCpu(report, cpu, count, what) {
  for (const name of ['gateway', 'session']) report.figure(`CPU of ${name} per ${what}`, (cpu[name] * 1000) / count, { unit: 'µs' }); // prettier-ignore
}

/**
 * What open streams cost that have nothing to say: the time of other calls, and memory, taken between so many streams
 * and twice as many, so that what the first ones load is not counted.
 */
async function measureIdle({ report, progress, clients, journals, bench }, streams) {
  progress(`${streams} and ${2 * streams} idle streams`);
  const { id } = await bench.client.sessions.create({});
  await callTimes(bench, id);
  const without = await callTimes(bench, id);
  const sessionIds = Array.from({ length: streams }, (_, index) => journals[index % journals.length].sessionId);
  await clients.open(sessionIds);
  await sleep(2_000);
  const before = memoryOf(bench.pids.gateway).nowMb;
  await clients.open(sessionIds);
  const meter = new CpuMeter(bench.pids);
  await sleep(IDLE_SECONDS * 1_000);
  const cpu = meter.read();
  const after = memoryOf(bench.pids.gateway).nowMb;
  const beside = await callTimes(bench, id);
  await clients.close();
  report.section(`${2 * streams} idle streams`);
  const perStreamKb = (Math.max(0, after - before) * 1024) / streams;
  report.figure('memory of the gateway per stream', perStreamKb, { unit: 'KB', aim: { atMost: 30 } });
  report.figure('CPU of the gateway', cpu.gateway / (IDLE_SECONDS * 10), { unit: '%' });
  report.milliseconds('another call', beside, { baseline: { name: 'without', ...percentiles(without) } });
}

async function callTimes({ client }, sessionId, count = 100) {
  const times = [];
  for (let index = 0; index < count; index += 1) {
    const startMs = performance.now();
    await client.session(sessionId).events({ limit: 1 });
    times.push(performance.now() - startMs);
  }
  return times;
}

async function measureEnd({ report, progress, clients, writer, bench }, runs) {
  progress(`the end of ${runs} runs`);
  await clients.reset();
  for (let index = 0; index < runs; index += 1) {
    const journal = await openRun(bench, writer);
    await clients.open([journal.sessionId]);
    await journal.finish();
    for (let turn = 0; (await clients.collect()).endings.length <= index && turn < 200; turn += 1) await sleep(10);
  }
  const { endings } = await clients.collect();
  report.section('last event → stream_end');
  report.figure('streams that ended', endings.length, { aim: { atLeast: runs } });
  const times = endings.map(({ completionUs, endUs }) => (endUs - completionUs) / 1000);
  report.milliseconds('completion → stream_end', times, { aims: { p99: { atMost: 50 } } });
}

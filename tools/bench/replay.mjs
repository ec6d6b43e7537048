// Reading what is stored: whole sessions as a stream, and pages of them, beside a plain read of the same documents.
import { startBenchPlatform } from './shared/bench-platform.mjs';
import { benchFolder, openBenchServers } from './shared/bench-servers.mjs';
import { CpuMeter } from './shared/processes.mjs';
import { percentiles } from './shared/report.mjs';
import { startClients } from './stream/clients.mjs';
import { Writer } from './stream/writer.mjs';

/** As a step of an agent writes them. */
const EVENTS_PER_COMMIT = 3;
const IN_FLIGHT = 50;
const PAGE = 100;
const PAGES = 100;

export async function run({ report, closing, progress, isQuick }) {
  const directory = await benchFolder(closing);
  const servers = await openBenchServers({ directory, closing, progress });
  progress('starting the platform, one process per service');
  // The writer does not come back to a server that closes its connection.
  const env = { MARGAY_GRPC_CONNECTION_AGE_SECONDS: '3600' };
  const nobody = { baseUrl: 'http://127.0.0.1:9/v1' };
  const bench = await startBenchPlatform({
    directory,
    closing,
    servers,
    model: nobody,
    mode: 'split',
    runners: 0,
    env,
  });
  const clients = startClients(bench);
  closing.add(() => clients.stop());
  const writer = await Writer.start(bench);
  closing.add(() => writer.stop());
  const commits = servers.connection.collection('commits');
  const context = { report, progress, bench, clients, writer, commits };
  await measureReplay(context, 1_000, isQuick ? 10 : 50);
  await measureReplay(context, isQuick ? 5_000 : 50_000, isQuick ? 2 : 5);
}

/** A session with so many events, each step of which was a commit. */
async function sessionOf({ writer, bench }, events) {
  const journal = await writer.take(await bench.client.sessions.create({}));
  let pending = [];
  for (let written = 0; written < events; written += EVENTS_PER_COMMIT) {
    pending.push(journal.write(Math.min(EVENTS_PER_COMMIT, events - written)));
    if (pending.length < IN_FLIGHT) continue;
    await Promise.all(pending);
    pending = [];
  }
  await Promise.all(pending);
  return journal.sessionId;
}

async function measureReplay(context, events, turns) {
  const { report, progress, bench, clients } = context;
  progress(`a session of ${events} events`);
  const sessionId = await sessionOf(context, events);
  const plain = [];
  const replays = [];
  await readPlainly(context, sessionId);
  const meter = new CpuMeter(bench.pids);
  const cpu = { gateway: 0, session: 0 };
  for (let turn = 0; turn < turns; turn += 1) {
    plain.push(await readPlainly(context, sessionId));
    meter.restart();
    const startMs = performance.now();
    await clients.open([sessionId]);
    replays.push(performance.now() - startMs);
    const spent = meter.read();
    for (const name of Object.keys(cpu)) cpu[name] += spent[name];
    await clients.close();
  }
  const pages = await readPages(context, sessionId, events);
  report.section(`${events} events in ${Math.ceil(events / EVENTS_PER_COMMIT)} commits`);
  report.milliseconds('replay of all', replays, {
    baseline: { name: 'plain store read', ...percentiles(plain) },
    ...(events === 1_000 && { aims: { p50: { atMost: 30 } } }),
  });
  report.figure('events per second', (events * 1_000) / percentiles(replays).p50);
  for (const name of Object.keys(cpu)) report.figure(`CPU of ${name} per event`, (cpu[name] * 1_000) / (events * turns), { unit: 'µs' }); // prettier-ignore
  report.milliseconds(`page of ${PAGE}, anywhere`, pages.ours, {
    baseline: { name: 'plain store read', ...percentiles(pages.plain) },
    aims: { p95: { atMost: 50 } },
  });
}

/** The documents of a session, or those of a range of numbers, and nothing done with them. */
async function readPlainly({ commits }, sessionId, from = 1, to = 9_999_999_999) {
  const key = (c) => `${sessionId}.${String(c).padStart(10, '0')}`;
  const startMs = performance.now();
  for await (const document of commits.find({ _id: { $gte: key(from), $lte: key(to) } }).sort({ _id: 1 }))
    void document;
  return performance.now() - startMs;
}

async function readPages(context, sessionId, events) {
  const session = context.bench.client.session(sessionId);
  const ours = [];
  const plain = [];
  let [{ ts: before }] = (await session.events({ limit: 1 })).events;
  // Backwards through the session in strides, so that every depth of it is seen.
  const strides = Math.max(1, Math.floor(events / PAGE / PAGES));
  for (let seq = events; seq > 2 * PAGE; seq -= PAGE * strides) {
    const startMs = performance.now();
    const page = await session.events({ before, limit: PAGE });
    ours.push(performance.now() - startMs);
    const c = Math.floor(seq / EVENTS_PER_COMMIT);
    plain.push(await readPlainly(context, sessionId, c - Math.ceil(PAGE / EVENTS_PER_COMMIT), c));
    for (let skipped = 1; skipped < strides; skipped += 1) {
      const { events: passed } = await session.events({ before: page.events[0].ts, limit: PAGE });
      if (passed.length < PAGE) return { ours, plain };
      page.events = passed;
    }
    before = page.events[0].ts;
  }
  return { ours, plain };
}

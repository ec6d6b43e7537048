// What the engine costs per step: the compiled library in this process, against the bench model, on the durable log with
// a store in memory, and on a journal that only counts. Beside it the floor: a bare client doing the same work.
// usage: node engine-steps.mjs [--rounds N] [--parallel N,N] [--repeat N] [--sessions N]
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { performance } from 'node:perf_hooks';
import { parseArgs } from 'node:util';
import engine from '../../libs/engine/dist/index.js';
import log from '../../libs/log/dist/index.js';
import providers from '../../libs/providers/dist/index.js';
import { measureFloor } from './floor.mjs';
import { RandomIds, readFile, RealClock } from './shared/engine-ports.mjs';

const { allowAll, createEngine, Inbox, Journal, LocalTools, Model, runAgent } = engine;

/** Notes how long the engine takes between two model calls. */
class TimedModel extends Model {
  gapsMs = [];
  #endedMs;
  constructor(inner) {
    super();
    this.inner = inner;
  }
  async call(request, options) {
    if (this.#endedMs !== undefined) this.gapsMs.push(performance.now() - this.#endedMs);
    const answer = await this.inner.call(request, options);
    this.#endedMs = performance.now();
    return answer;
  }
  restart() {
    this.gapsMs = [];
    this.#endedMs = undefined;
  }
}

/** Stores nothing: what is left is the engine's own cost. */
class CountingJournal extends Journal {
  c = 0;
  constructor(head, records) {
    super();
    this.opened = { head, records };
  }
  open = async () => this.opened;
  commit = async () => (this.c += 1);
  finish = async () => 'finished';
  delta = () => undefined;
}

class QuietInbox extends Inbox {
  stop = new AbortController().signal;
  since = () => [];
  onInterrupt = () => () => undefined;
}

const ports = { clock: new RealClock(), ids: new RandomIds() };

/** A run as `createEngine` makes it: accepted, claimed, every commit through the reducer. */
async function durableRun(model, name) {
  const made = createEngine({
    ...ports,
    store: new log.MemoryCommitStore(),
    blobs: new log.MemoryBlobStore(),
    model,
    tools: [readFile],
  });
  const session = await made.createSession();
  const { doneReason, steps } = await session.run('go', { model: name });
  made.close();
  if (doneReason !== 'completed') throw new Error(`the run ended ${doneReason}`);
  return steps + 1;
}

async function bareRun(model, name) {
  const options = { model: name, fallbackModels: [], mode: 'act', mcpTools: null, capabilities: [], stepBudget: 0 };
  const sessionId = ports.ids.hex(32);
  const head = { ...log.emptyHead(sessionId), c: 2, epoch: 2 };
  const records = [
    { kind: 'run', runId: 'r1', options: { ...options, engineVersion: 'bench' } },
    { kind: 'user', runId: 'r1', text: 'go', attachments: [] },
  ].map((record) => ({ c: 2, record }));
  const inbox = new QuietInbox();
  const ended = await runAgent({
    ...ports,
    model,
    inbox,
    approvals: allowAll,
    tools: new LocalTools([readFile], { sessionId, epoch: 2 }),
    journal: new CountingJournal(head, records),
  });
  if (ended.doneReason !== 'completed') throw new Error(`the run ended ${JSON.stringify(ended)}`);
  return ended.steps + 1;
}

async function measure(run, { name, baseUrl, repeat, sessions }) {
  const model = new TimedModel(providers.openAiModel({ baseUrl, apiKey: 'none' }));
  await run(model, name);
  const samples = [];
  for (let turn = 0; turn < repeat; turn += 1) {
    model.restart();
    const cpu = process.cpuUsage();
    const startMs = performance.now();
    const all = await Promise.all(Array.from({ length: sessions }, () => run(model, name)));
    const steps = all.reduce((sum, count) => sum + count, 0);
    const { user, system } = process.cpuUsage(cpu);
    const wallMs = performance.now() - startMs;
    samples.push({ steps, wallMs, cpuMs: (user + system) / 1000, gapsMs: model.gapsMs });
  }
  const { steps, wallMs, cpuMs, gapsMs } = samples.sort((a, b) => a.cpuMs - b.cpuMs)[Math.floor(repeat / 2)];
  return { cpuMsPerStep: cpuMs / steps, stepsPerSecond: (steps / wallMs) * 1000, ...percentiles(gapsMs) };
}

function percentiles(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  return { p50Ms: at(0.5), p95Ms: at(0.95), p99Ms: at(0.99) };
}

async function startModel() {
  const server = new URL('./model/server.mjs', import.meta.url).pathname;
  const child = spawn(process.execPath, [server, '--port', '0'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const [line] = await once(child.stdout, 'data');
  const port = /:?(\d{4,5})/.exec(String(line))?.[1];
  return { baseUrl: `http://127.0.0.1:${port}/v1`, stop: () => child.kill() };
}

const print = (name, parallel, values) => {
  const figures = Object.entries(values).map(([key, value]) => `${key} ${value.toFixed(value >= 100 ? 0 : 3)}`);
  process.stdout.write(`${name.padEnd(16)} ${String(parallel).padStart(2)} call(s)  ${figures.join('  ')}\n`);
};

const text = { type: 'string' };
const { values } = parseArgs({ options: { rounds: text, parallel: text, repeat: text, sessions: text } });
const rounds = Number(values.rounds ?? 200);
const repeat = Number(values.repeat ?? 5);
const sessions = Number(values.sessions ?? 1);
const { baseUrl, stop } = await startModel();
try {
  for (const parallel of (values.parallel ?? '1,4').split(',').map(Number)) {
    const settings = { name: `r${rounds}p${parallel}`, baseUrl, repeat, sessions };
    const { cpuMsPerStep } = await measureFloor({ baseUrl, rounds, parallel, repeat });
    print('floor', parallel, { cpuMsPerStep });
    print('engine, bare', parallel, await measure(bareRun, settings));
    print('engine, durable', parallel, await measure(durableRun, settings));
  }
} finally {
  stop();
}

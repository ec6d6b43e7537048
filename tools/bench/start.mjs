// `npm start` on this machine, built: the first time in a new home, and the second time; what it then costs to be there.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { readFileSync } from 'node:fs';
import { root } from '../prepare.mjs';
import { benchFolder } from './shared/bench-servers.mjs';
import { CpuMeter, descendantsOf, memoryOf } from './shared/processes.mjs';

const READY = /Margay is ready: /;
const READY_LIMIT_MS = 120_000;

export async function run({ report, closing, progress, isQuick }) {
  const directory = await benchFolder(closing);
  await reportBundles(report);
  const home = join(directory, 'home');
  for (const turn of ['first start, new home', 'second start']) {
    progress(turn);
    const started = await start(home, closing);
    report.section(`npm start, built: ${turn}`);
    const aim = turn === 'second start' && { aim: { atMost: 6 } };
    report.figure('time to ready', started.readyMs / 1_000, { unit: 's', ...aim });
    for (const { text, ms } of started.lines) report.note(`${(ms / 1000).toFixed(2)} s  ${text}`);
    if (turn === 'second start') await reportIdle(report, started.child, isQuick ? 3 : 10);
    await started.stop();
  }
}

async function reportBundles(report) {
  report.section('bundles');
  for (const name of ['margay.cjs', 'sandboxd.cjs', 'cli.cjs'])
    report.figure(name, (await stat(join(root, 'dist', name))).size / 1_048_576, { unit: 'MB' });
}

/** The command as a user runs it, on ports of its own; `lines` are its progress, with the time of each. */
async function start(home, closing) {
  const startMs = performance.now();
  const child = spawn(process.execPath, [join(root, 'tools/start.mjs'), '--home', home], {
    env: { ...process.env, OPENAI_API_KEY: '', OPENAI_BASE_URL: '' },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const exited = once(child, 'exit');
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null) child.kill('SIGTERM');
    await exited;
  };
  closing.add(stop);
  const lines = [];
  const note = (chunk) => {
    const ms = performance.now() - startMs;
    for (const text of String(chunk).split('\n')) if (text.trim() !== '') lines.push({ text: text.trim(), ms });
  };
  child.stderr.on('data', note);
  const ready = new Promise((resolve) => {
    child.stdout.on('data', (chunk) => READY.test(String(chunk)) && resolve(performance.now() - startMs));
  });
  const failed = exited.then(([code]) => {
    throw new Error(`npm start ended with ${code}: ${lines.map(({ text }) => text).join(' | ')}`);
  });
  failed.catch(() => undefined); // it ends once it is told to
  const late = sleep(READY_LIMIT_MS, undefined, { ref: false }).then(() => {
    throw new Error('npm start was not ready in two minutes');
  });
  const readyMs = await Promise.race([ready, failed, late]);
  return { child, readyMs, lines, stop };
}

async function reportIdle(report, child, seconds) {
  const pids = namedPids(child.pid);
  await sleep(2_000);
  const meter = new CpuMeter(pids);
  await sleep(seconds * 1_000);
  const cpu = meter.read();
  let oursMb = 0;
  for (const [name, pid] of Object.entries(pids)) {
    const { nowMb } = memoryOf(pid);
    if (name === 'control' || name === 'agent-runner') oursMb += nowMb;
    report.figure(`memory of ${name}`, nowMb, { unit: 'MB' });
  }
  report.figure('memory of control and agent-runner', oursMb, { unit: 'MB', aim: { atMost: 350 } });
  for (const [name, ms] of Object.entries(cpu))
    report.figure(`idle CPU of ${name}`, ms / (seconds * 10), { unit: '%' });
}

/** Names of what npm start has started, by their command lines. */
function namedPids(pid) {
  const names = [
    [/--services agent-runner/, 'agent-runner'],
    [/--services /, 'control'],
    [/nats-server/, 'nats'],
    [/secantusd|mongod/, 'store'],
    [/demo-model/, 'demo-model'],
  ];
  const pids = {};
  for (const below of [...descendantsOf(pid), pid]) {
    const line = readFileSync(`/proc/${below}/cmdline`, 'latin1').replaceAll('\0', ' ');
    const name = names.find(([pattern]) => pattern.test(line))?.[1];
    if (name && !line.startsWith('/bin/sh') && !line.startsWith('sh ')) pids[name] ??= below;
  }
  return { ...pids, launcher: pid };
}

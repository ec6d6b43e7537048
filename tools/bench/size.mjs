// How large an installation must be for its peak: a calculation from what the other benches measured, nothing is run.
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { parse } from 'yaml';
import { root } from '../prepare.mjs';

// What one replica does at most. Rounded down from what was measured on two shared processors, so that there is room.
const RUNNER_SPARE = 1.25;
const STREAMS_PER_GATEWAY = 8_000;
const REQUESTS_PER_GATEWAY = 4_000;
const COMMITS_PER_SESSION_CORE = 1_500;
const CALLS_PER_EXECUTOR = 500;
const CONNECTIONS_PER_EGRESS = 2_000;
const CONNECTIONS_PER_SANDBOX = 2;
const COMMITS_PER_STEP = 2;
/** Pods of the system on each node, and of the services. */
const RESERVED_PODS = 20;
const MB_PER_RUN = 0.4;
const CACHE_DAYS = 7;
const SANDBOX = { cpus: 0.25, gib: 0.5 };

/** @returns replicas of each service, nodes for sandboxes, and what the store keeps */
export function sizeOf(peak, slots) {
  const atLeastTwo = (...shares) => Math.max(2, ...shares.map(Math.ceil));
  const commitsPerSecond = (COMMITS_PER_STEP * peak.runs) / peak['step-seconds'];
  const { runs } = peak;
  const nodes = [
    ['processors', (runs * SANDBOX.cpus) / peak['node-cpus']],
    ['memory', (runs * SANDBOX.gib) / peak['node-gib']],
    ['pods', runs / Math.max(1, peak['node-pods'] - RESERVED_PODS)],
    ['volumes', runs / peak['node-volumes']],
  ].map(([what, count]) => [what, Math.ceil(count)]);
  const [scarce, most] = nodes.reduce((worst, next) => (next[1] > worst[1] ? next : worst));
  const mbPerDay = MB_PER_RUN * peak['runs-per-day'];
  return {
    commitsPerSecond,
    replicas: {
      gateway: atLeastTwo(peak.streams / STREAMS_PER_GATEWAY, peak['requests-per-second'] / REQUESTS_PER_GATEWAY),
      session: atLeastTwo(commitsPerSecond / COMMITS_PER_SESSION_CORE),
      'agent-runner': Math.ceil((RUNNER_SPARE * runs) / slots) + 1,
      'tool-executor': atLeastTwo(runs / CALLS_PER_EXECUTOR),
      egress: atLeastTwo((CONNECTIONS_PER_SANDBOX * runs) / CONNECTIONS_PER_EGRESS),
    },
    nodes: { most, scarce },
    store: { gibPerDay: mbPerDay / 1024, cacheGib: (CACHE_DAYS * mbPerDay) / 1024 },
  };
}

export async function run({ report, peak }) {
  const values = parse(await readFile(join(root, 'charts/margay/values.yaml'), 'utf8'));
  const [{ slots }] = values.runner.pools;
  const { commitsPerSecond, replicas, nodes, store } = sizeOf(peak, slots);
  report.section(`${peak.runs} runs and ${peak.streams} streams at once, a step every ${peak['step-seconds']} s`);
  for (const [service, count] of Object.entries(replicas)) report.figure(service, count, { unit: 'replicas' });
  report.figure('session, commits', commitsPerSecond, { unit: '/s' });
  report.figure(`nodes for sandboxes (${nodes.scarce} are scarce)`, nodes.most, { unit: 'nodes' });
  report.figure('MongoDB, grows by', store.gibPerDay, { unit: 'GiB a day' });
  report.figure('MongoDB, cache of each of 3 members', store.cacheGib, { unit: 'GiB' });
  report.figure('NATS, members with 1 processor and 512 MiB', 3);
  report.note(
    `runners have ${slots} slots each, and a sandbox of the class default asks for 0.25 processors and 512 MiB`,
  );
  if (nodes.scarce === 'volumes') report.note('the class dense needs no volumes');
}

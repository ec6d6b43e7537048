// Where the CPU time of the platform's processes goes, from the profiles that Node writes when they end.
import { chmod, mkdir, readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { root } from '../../prepare.mjs';

const TOP = 14;
const UNCOUNTED = new Set(['(root)', '(idle)', '(program)']);

/**
 * Prepares to profile processes that are started with `env`. Call `mark()` where the interesting work begins and ends,
 * and `report` once they have ended.
 */
export async function prepareProfile(directory) {
  const folder = join(directory, 'profiles');
  await mkdir(folder, { recursive: true });
  await chmod(folder, 0o711);
  const marksUs = [];
  return {
    env: { NODE_OPTIONS: `--cpu-prof --cpu-prof-dir=${folder}` },
    // The profiler's clock is the monotonic one of the machine.
    mark: () => marksUs.push(Number(process.hrtime.bigint() / 1000n)),
    report: (report, pids) => reportProfiles(report, folder, pids, marksUs),
  };
}

async function reportProfiles(report, folder, pids, [fromUs = 0, toUs = Infinity]) {
  const moduleAt = await bundleModules();
  const files = await readdir(folder);
  for (const [name, pid] of Object.entries(pids)) {
    const file = files.find((entry) => entry.split('.').includes(String(pid)));
    if (file === undefined) continue;
    const profile = JSON.parse(await readFile(join(folder, file), 'utf8'));
    const times = timesByOwner(profile, moduleAt, { fromUs, toUs });
    report.section(`profile of ${name} while it worked: ${Math.round(times.totalMs)} ms, share by module`);
    for (const [module, ms] of largest(times.modules)) report.figure(module, (ms / times.totalMs) * 100, { unit: '%' });
    report.section(`profile of ${name} while it worked: share by function`);
    for (const [key, ms] of largest(times.functions)) report.figure(key, (ms / times.totalMs) * 100, { unit: '%' });
    report.note('what Node itself does counts for the module that called it');
  }
}

const largest = (times) => [...times].sort(([, a], [, b]) => b - a).slice(0, TOP);
/** Adds to a key's sum. */
const add = (times, key, ms) => times.set(key, (times.get(key) ?? 0) + ms);

/** Self time by the nearest module of the bundle: Node's own code and native calls are on their callers' account. */
function timesByOwner({ nodes, samples, timeDeltas, startTime }, moduleAt, { fromUs, toUs }) {
  const owners = ownersOf(nodes, moduleAt);
  const modules = new Map();
  const functions = new Map();
  let totalMs = 0;
  let nowUs = startTime;
  samples.forEach((id, index) => {
    nowUs += timeDeltas[index];
    const { module, name } = owners.get(id);
    if (nowUs < fromUs || nowUs > toUs || UNCOUNTED.has(name)) return;
    const ms = timeDeltas[index] / 1000;
    totalMs += ms;
    add(modules, module, ms);
    add(functions, `${name} · ${module}`, ms);
  });
  return { modules, functions, totalMs };
}

function ownersOf(nodes, moduleAt) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const owners = new Map();
  const visit = (node, inherited) => {
    const { functionName, url, lineNumber } = node.callFrame;
    const name = functionName || '(anonymous)';
    const isOurs = url.endsWith('.cjs');
    const owner = isOurs ? { module: moduleAt(lineNumber), name } : (inherited ?? { module: 'node', name });
    const isSpecial = name.startsWith('(') && url === '' && name !== '(anonymous)';
    owners.set(node.id, isSpecial ? { module: name, name } : owner);
    for (const child of node.children ?? []) visit(byId.get(child), isOurs ? owner : inherited);
  };
  visit(nodes[0], undefined);
  return owners;
}

/** Package or library of a line of the bundle, by the comments that esbuild leaves before each module. */
async function bundleModules() {
  const lines = (await readFile(join(root, 'dist/margay.cjs'), 'utf8')).split('\n');
  const starts = [];
  lines.forEach((line, number) => {
    const path = /^\s*\/\/ ((?:node_modules|libs|services)\/\S+)$/.exec(line)?.[1];
    if (path) starts.push([number, nameOf(path)]);
  });
  return (line) => starts.findLast(([number]) => number <= line)?.[1] ?? 'bundle';
}

/** `node_modules/a/…` → `a`; our own modules keep their path. */
function nameOf(path) {
  if (!path.startsWith('node_modules/')) return path.replace('/dist/', '/');
  const inside = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
  return inside
    .split('/')
    .slice(0, inside.startsWith('@') ? 2 : 1)
    .join('/');
}

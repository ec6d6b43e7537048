// `npm start`: installs what is missing, builds, and brings Margay up on this machine. See --help.
// It runs on a fresh clone and on old versions of Node, so only Node's own modules at the top and plain syntax.
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const pinnedNode = join(root, 'node_modules/.bin/node');
const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/** Progress goes to standard error: with a task, standard output is the answer. */
const progress = (line) => process.stderr.write(`${line}\n`);

try {
  process.exitCode = await main();
} catch (error) {
  progress(`error: ${error.message}`);
  process.exitCode = error.reason === 'usage' ? 2 : error.reason === 'interrupted' ? 130 : 1;
}
// Ends at once, also when a step that was given up still waits for something.
process.exit();

async function main() {
  if (!isInstalled()) {
    progress('installing packages (npm ci), a minute or two');
    await run(npm(), ['ci'], 'npm ci failed; see its messages above');
  }
  if (existsSync(pinnedNode) && realpathSync(pinnedNode) !== realpathSync(process.execPath)) return again(pinnedNode);
  if (Number(process.versions.node.split('.')[0]) < 24) {
    throw new Error(
      `Margay needs Node 24 or later and this is ${process.versions.node}; install it and run npm start again`,
    );
  }
  const interrupted = new AbortController();
  for (const signal of signals) process.on(signal, () => interrupted.abort());
  const { build } = await import('./build.mjs');
  await build(progress);
  const { startCommandLine } = await import('../libs/launcher/dist/index.js');
  return startCommandLine({
    args: process.argv.slice(2),
    root,
    calledIn: process.env.INIT_CWD ?? process.cwd(),
    progress,
    print: (text) => process.stdout.write(`${text}\n`),
    signal: interrupted.signal,
  });
}

/** Whether every package of the lockfile is there in its version; optional ones may be missing. */
function isInstalled() {
  let installed;
  try {
    installed = JSON.parse(readFileSync(join(root, 'node_modules/.package-lock.json'), 'utf8')).packages;
  } catch {
    return false; // nothing installed, or an installation that was cut short
  }
  const locked = JSON.parse(readFileSync(join(root, 'package-lock.json'), 'utf8')).packages;
  return Object.entries(locked).every(([path, entry]) => {
    if (!path.includes('node_modules/') || entry.optional || entry.devOptional) return true;
    return installed[path] !== undefined && installed[path].version === entry.version;
  });
}

function npm() {
  return process.platform === 'win32' ? 'npm.cmd' : 'npm';
}

function run(command, args, failure) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { cwd: root, stdio: ['ignore', 2, 2], shell: process.platform === 'win32' });
    child.once('error', reject);
    child.once('exit', (code) => (code === 0 ? resolve() : reject(new Error(failure))));
  });
}

/** Runs this script once more on another Node and answers its exit code; signals are passed on to it. */
function again(node) {
  return new Promise((resolve, reject) => {
    const child = spawn(node, [fileURLToPath(import.meta.url), ...process.argv.slice(2)], { stdio: 'inherit' });
    for (const signal of signals) process.on(signal, () => child.kill(signal));
    child.once('error', reject);
    child.once('exit', (code, signal) => resolve(code ?? (signal ? 130 : 1)));
  });
}

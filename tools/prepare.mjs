// What every command of this repository needs first: the packages of the lockfile and the pinned Node.
// It runs on a fresh clone and on old versions of Node, so only Node's own modules and plain syntax.
import { spawn } from 'node:child_process';
import { existsSync, readFileSync, realpathSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = fileURLToPath(new URL('..', import.meta.url));
const pinnedNode = join(root, 'node_modules/.bin/node');
export const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'];

/**
 * Installs what is missing and sees to it that the script runs on Node 24.
 * @returns the exit code of the script where it had to be run once more on the pinned Node; undefined: go on here
 */
export async function prepare(script, progress) {
  if (!isInstalled()) {
    progress('installing packages (npm ci), a minute or two');
    await run(npm(), ['ci', '--loglevel=error'], 'npm ci failed; see its messages above');
  }
  if (existsSync(pinnedNode) && realpathSync(pinnedNode) !== realpathSync(process.execPath)) return again(script);
  if (Number(process.versions.node.split('.')[0]) < 24) {
    throw new Error(
      `Margay needs Node 24 or later and this is ${process.versions.node}; install it and run the command again`,
    );
  }
  return undefined;
}

/** Progress goes to standard error. */
export const progress = (line) => process.stderr.write(`${line}\n`);

/** Runs the `main` of a command of this repository, prepared; its answer is the exit code, 1 after an error. */
export async function runCommand(url, main) {
  try {
    process.exitCode = (await prepare(fileURLToPath(url), progress)) ?? (await main());
  } catch (error) {
    progress(`error: ${error.stack ?? error.message}`);
    process.exitCode = 1;
  }
  process.exit();
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

/** Runs the script once more on the pinned Node and answers its exit code; signals are passed on to it. */
function again(script) {
  return new Promise((resolve, reject) => {
    const child = spawn(pinnedNode, [script, ...process.argv.slice(2)], { stdio: 'inherit' });
    for (const signal of SIGNALS) process.on(signal, () => child.kill(signal));
    child.once('error', reject);
    child.once('exit', (code, signal) => resolve(code ?? (signal ? 130 : 1)));
  });
}

// Programs that the chart's tests need and that are built from Go modules, into the user's cache.
import { execFile, spawn } from 'node:child_process';
import { mkdir, rename, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';

export const cache = join(process.env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'margay');

export const hasGo = () =>
  promisify(execFile)('go', ['version']).then(
    () => true,
    () => false,
  );

/**
 * Builds into a folder of the cache that appears whole or not at all.
 * @param command arguments of `go`, given the folder to write to
 */
export async function buildInCache(name, command, { cwd, env } = {}) {
  const draft = join(cache, `${name}.${process.pid}`);
  await mkdir(draft, { recursive: true });
  try {
    await go(command(draft), { cwd, env: { ...process.env, CGO_ENABLED: '0', ...env?.(draft) } });
    await rm(join(cache, name), { recursive: true, force: true });
    await rename(draft, join(cache, name));
  } finally {
    await rm(draft, { recursive: true, force: true });
  }
}

function go(args, options) {
  return new Promise((resolve, reject) => {
    const child = spawn('go', args, { ...options, stdio: ['ignore', 2, 2] });
    child.once('error', () => reject(new Error(`'go ${args[0]}' could not be started`)));
    child.once('exit', (code) => (code === 0 ? resolve() : reject(new Error(`'go ${args[0]}' failed; see above`))));
  });
}

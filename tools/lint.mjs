// `npm run lint [paths…]`: ESLint over the whole project, with a cache. Any finding fails.
import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('..', import.meta.url));
const environment = { ...process.env, NX_DAEMON: 'false', NX_TUI: 'false', NX_NO_CLOUD: 'true' };

function run(file, args, stdio) {
  const { status, error, stderr } = spawnSync(process.execPath, [file, ...args], {
    cwd: root,
    env: environment,
    stdio,
  });
  if (error) throw error;
  if (status !== 0 && stderr) process.stderr.write(stderr);
  return status ?? 1;
}

// Without a stored project graph the boundary rule skips itself and reports nothing.
const graph = run('node_modules/.bin/nx', ['show', 'projects'], ['ignore', 'ignore', 'pipe']);
if (graph !== 0) {
  process.stderr.write('lint: the project graph could not be made, so module boundaries cannot be checked\n');
  process.exit(graph);
}

const paths = process.argv.slice(2);
const cache = ['--cache', '--cache-strategy', 'content', '--cache-location', 'node_modules/.cache/eslint/'];
process.exitCode = run(
  'node_modules/.bin/eslint',
  [...cache, '--max-warnings', '0', ...(paths.length > 0 ? paths : ['.'])],
  'inherit',
);

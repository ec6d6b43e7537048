// `npm start`: installs what is missing, builds, and brings Margay up on this machine. See --help.
import { fileURLToPath } from 'node:url';
import { prepare, root, SIGNALS } from './prepare.mjs';

/** Progress goes to standard error: with a task, standard output is the answer. */
const progress = (line) => process.stderr.write(`${line}\n`);

try {
  process.exitCode = (await prepare(fileURLToPath(import.meta.url), progress)) ?? (await main());
} catch (error) {
  progress(`error: ${error.message}`);
  process.exitCode = error.reason === 'usage' ? 2 : error.reason === 'interrupted' ? 130 : 1;
}
// Ends at once, also when a step that was given up still waits for something.
process.exit();

async function main() {
  const interrupted = new AbortController();
  for (const signal of SIGNALS) process.on(signal, () => interrupted.abort());
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

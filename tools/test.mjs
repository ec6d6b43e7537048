// `npm test`: unit, contract, integration and end-to-end tests, with all their set-up. `npm test -- PATTERN…` runs the
// files that match, `-- --again` runs files with failures once more. It ends with a line `N passed, N failed`.
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { prepare, progress, SIGNALS } from './prepare.mjs';
import { report, runJest } from './jest.mjs';

try {
  process.exitCode = (await prepare(fileURLToPath(import.meta.url), progress)) ?? (await main());
} catch (error) {
  progress(`error: ${error.stack ?? error.message}`);
  process.stdout.write('0 passed, 1 failed\n');
  process.exitCode = 1;
}
process.exit();

async function main() {
  const patterns = process.argv.slice(2).filter((argument) => argument !== '--again');
  const isAgain = process.argv.includes('--again');
  const { build } = await import('./build.mjs');
  await build(progress);
  const { openServers, TEST_SOURCES } = await import('../libs/launcher/dist/index.js');
  const directory = await mkdtemp(join(tmpdir(), 'margay-test-'));
  let servers;
  let running;
  let interrupted;
  const start = (...command) => (running = spawn(...command));
  const stop = async () => {
    // A signal to this process alone, as a supervisor sends it, ends all of it.
    running?.kill();
    await servers?.stop();
    await rm(directory, { recursive: true, force: true });
  };
  const interrupt = () => (interrupted ??= stop().finally(() => process.exit(130)));
  for (const signal of SIGNALS) process.once(signal, interrupt);
  try {
    // One server of each kind for the whole run; every file has a database of its own.
    servers = await openServers({ directory, progress, allow: TEST_SOURCES });
    const env = { ...process.env, MARGAY_NATS_URL: servers.nats.url, MARGAY_MONGODB_URL: servers.store.url };
    const run = async (name, ...flags) => {
      await interrupted;
      progress(`running ${name} tests`);
      return runJest(patterns, ['--passWithNoTests', ...flags], { env, isAgain, start });
    };
    return report(
      await run('unit and integration', '--testMatch', '<rootDir>/{libs,services,tools,test}/**/*.{spec,int-spec}.ts'),
      // Whole platforms of several processes each: one file after the other.
      await run('end to end', '--runInBand', '--testMatch', '<rootDir>/test/**/*.e2e-spec.ts'),
    );
  } finally {
    await stop();
  }
}

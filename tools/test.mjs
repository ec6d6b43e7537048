// `npm test`: unit, contract, integration and end-to-end tests, with all their set-up. `npm test -- PATTERN…` runs the
// files that match. It ends with a line `N passed, N failed`.
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { prepare, root, SIGNALS } from './prepare.mjs';

const progress = (line) => process.stderr.write(`${line}\n`);
const jest = join(root, 'node_modules/jest/bin/jest.js');

try {
  process.exitCode = (await prepare(fileURLToPath(import.meta.url), progress)) ?? (await main());
} catch (error) {
  progress(`error: ${error.stack ?? error.message}`);
  process.stdout.write('0 passed, 1 failed\n');
  process.exitCode = 1;
}
process.exit();

async function main() {
  const patterns = process.argv.slice(2);
  const { build } = await import('./build.mjs');
  await build(progress);
  const { openServers, TEST_SOURCES } = await import('../libs/launcher/dist/index.js');
  const directory = await mkdtemp(join(tmpdir(), 'margay-test-'));
  let servers;
  const stop = async () => {
    await servers?.stop();
    await rm(directory, { recursive: true, force: true });
  };
  for (const signal of SIGNALS) process.once(signal, () => void stop().finally(() => process.exit(130)));
  try {
    // One server of each kind for the whole run; every file has a database of its own.
    servers = await openServers({ directory, progress, allow: TEST_SOURCES });
    const env = { ...process.env, MARGAY_NATS_URL: servers.nats.url, MARGAY_MONGODB_URL: servers.store.url };
    const results = [
      await runJest(
        'unit and integration',
        [...patterns, '--testMatch', '<rootDir>/{libs,services,tools,test}/**/*.{spec,int-spec}.ts'],
        env,
        directory,
      ),
      // Whole platforms of several processes each: one file after the other.
      await runJest(
        'end to end',
        [...patterns, '--runInBand', '--testMatch', '<rootDir>/test/**/*.e2e-spec.ts'],
        env,
        directory,
      ),
    ];
    const passed = results.reduce((sum, { passed: n }) => sum + n, 0);
    const failed = results.reduce((sum, { failed: n }) => sum + n, 0);
    const skipped = results.reduce((sum, { skipped: n }) => sum + n, 0);
    process.stdout.write(`${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}\n`);
    return failed > 0 || passed === 0 ? 1 : 0;
  } finally {
    await stop();
  }
}

async function runJest(name, args, env, directory) {
  progress(`running ${name} tests`);
  const outputFile = join(directory, `${name.replaceAll(' ', '-')}.json`);
  const code = await new Promise((resolve, reject) => {
    const flags = [
      '--config',
      'jest.config.js',
      '--passWithNoTests',
      '--forceExit',
      '--json',
      '--outputFile',
      outputFile,
    ];
    // With --json jest prints its report to standard output too: only the file is wanted.
    const child = spawn(process.execPath, [jest, ...flags, ...args], {
      cwd: root,
      env,
      stdio: ['ignore', 'ignore', 'inherit'],
    });
    child.once('error', reject);
    child.once('exit', (status) => resolve(status ?? 1));
  });
  const report = JSON.parse(await readFile(outputFile, 'utf8'));
  const { numPassedTests, numFailedTests, numPendingTests, numRuntimeErrorTestSuites } = report;
  const failed = numFailedTests + numRuntimeErrorTestSuites;
  return { passed: numPassedTests, failed: failed === 0 && code !== 0 ? 1 : failed, skipped: numPendingTests };
}

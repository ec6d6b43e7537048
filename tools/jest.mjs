// Runs Jest as a process of its own and answers in numbers; what it prints goes to standard error.
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { progress, root } from './prepare.mjs';

/** More files than so many do not fail by chance. */
const MAX_AGAIN = 8;
const jest = join(root, 'node_modules/jest/bin/jest.js');

/**
 * Runs the files that match `patterns` (all without one) of those that `flags` choose.
 * @param options `env` of the process; `isAgain` (default no): up to eight files with failures run a second time, one after
 *   the other with nothing beside them, and that end counts; each test that passed only then is named as UNSTEADY.
 *   `start` (default `spawn`) starts the process.
 * @returns `{ passed, failed, skipped }`; a file that could not be run counts as one failure
 */
export async function runJest(patterns, flags, { env = process.env, isAgain = false, start = spawn } = {}) {
  const folder = await mkdtemp(join(tmpdir(), 'margay-jest-'));
  const run = async (files, more = []) => {
    const outputFile = join(folder, `report-${more.length}.json`);
    const own = ['--config', 'jest.config.js', '--forceExit', '--json', '--outputFile', outputFile];
    const args = [jest, ...own, ...files, ...more, ...flags];
    // With --json jest prints its report to standard output too: only the file is wanted.
    const child = start(process.execPath, args, { cwd: root, env, stdio: ['ignore', 'ignore', 'inherit'] });
    const [code] = await once(child, 'exit');
    return resultsIn(outputFile, code ?? 1);
  };
  try {
    const first = await run(patterns);
    const { length } = first.failedFiles;
    if (!isAgain || length === 0 || length > MAX_AGAIN) return first;
    progress(
      `again, for ${first.failed} failed: ${first.failedFiles.map((file) => file.slice(root.length)).join(', ')}`,
    );
    const second = await run(first.failedFiles, ['--runInBand']);
    for (const test of first.failedTests.filter((name) => second.passedTests.has(name))) progress(`UNSTEADY ${test}`);
    return {
      ...second,
      passed: first.passedElsewhere + second.passed,
      skipped: first.skippedElsewhere + second.skipped,
    };
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/**
 * Prints the line `N passed, N failed` for all results.
 * @returns the exit code of the command
 */
export function report(...results) {
  const sum = (of) => results.reduce((total, result) => total + result[of], 0);
  const [passed, failed, skipped] = [sum('passed'), sum('failed'), sum('skipped')];
  process.stdout.write(`${passed} passed, ${failed} failed${skipped > 0 ? `, ${skipped} skipped` : ''}\n`);
  return failed > 0 || passed === 0 ? 1 : 0;
}

async function resultsIn(outputFile, code) {
  // Without a report nothing ran: jest has said why.
  if (!existsSync(outputFile)) return { passed: 0, failed: 1, skipped: 0, failedFiles: [] };
  const all = JSON.parse(await readFile(outputFile, 'utf8'));
  const failed = all.numFailedTests + all.numRuntimeErrorTestSuites;
  const elsewhere = all.testResults.filter((file) => file.status !== 'failed');
  const titles = (files, wanted) =>
    files.flatMap(({ name, assertionResults }) =>
      assertionResults
        .filter(({ status }) => status === wanted)
        .map(({ fullName }) => `${name.slice(root.length)}: ${fullName}`),
    );
  return {
    passed: all.numPassedTests,
    failed: failed === 0 && code !== 0 ? 1 : failed,
    skipped: all.numPendingTests,
    failedFiles: all.testResults.filter(({ status }) => status === 'failed').map(({ name }) => name),
    failedTests: titles(all.testResults, 'failed'),
    passedTests: new Set(titles(all.testResults, 'passed')),
    passedElsewhere: titles(elsewhere, 'passed').length,
    skippedElsewhere: titles(elsewhere, 'pending').length,
  };
}

// `npm run test:chart`: lints charts/margay, renders every value set of its `ci/`, checks each object against the schemas of
// Kubernetes, runs the unit tests of the templates and lets the alerts fire in Prometheus' own engine. `-- --write` makes
// README.md, the schema and the dashboards anew. Where helm can't be had it prints `SKIP chart: <reason>`.
import { execFile } from 'node:child_process';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { promisify } from 'node:util';
import { report, runJest } from './jest.mjs';
import { progress, runCommand } from './prepare.mjs';

await runCommand(import.meta.url, main);

async function main() {
  const { chart, generated } = await import('./chart/generate.mjs');
  const patterns = process.argv.slice(2).filter((argument) => argument !== '--write');
  if (process.argv.includes('--write')) {
    for (const [name, text] of Object.entries(await generated())) {
      await mkdir(dirname(join(chart, name)), { recursive: true });
      await writeFile(join(chart, name), text);
    }
    if (patterns.length === 0) return 0;
  }
  const { findHelm } = await import('./chart/helm.mjs');
  const helm = await findHelm(progress);
  if (!helm) return skip('neither helm 3.14 or later nor Go to build it is there');
  progress(`helm: ${helm.join(' ')}`);
  const isLinted = patterns.length > 0 || (await lint(helm, chart));
  const { findAlertEngine } = await import('./chart/alert-engine.mjs');
  const engine = await findAlertEngine(progress);
  if (!engine) progress('SKIP chart alerts: there is no Go to build the rule engine with');
  const env = { ...process.env, MARGAY_TEST_HELM: JSON.stringify(helm), MARGAY_TEST_ALERTS: engine ?? '' };
  const code = report(await runJest(patterns, ['--testMatch', '<rootDir>/test/chart/*.chart-spec.ts'], { env }));
  return isLinted ? code : 1;
}

/** One line on standard output; a failure where MARGAY_REQUIRE asks for the chart's tests. */
function skip(reason) {
  process.stdout.write(`SKIP chart: ${reason}\n`);
  return (process.env.MARGAY_REQUIRE ?? '').split(',').includes('chart') ? 1 : 0;
}

/** With each value set; strict. */
async function lint([program, ...first], chart) {
  const sets = (await readdir(join(chart, 'ci')))
    .filter((name) => name.endsWith('.yaml'))
    .map((name) => join(chart, 'ci', name));
  try {
    for (const set of sets) await promisify(execFile)(program, [...first, 'lint', '--strict', chart, '--values', set]);
    progress(`lint: ${sets.length} value sets`);
    return true;
  } catch (error) {
    progress(`lint failed:\n${error.stdout}${error.stderr}`);
    return false;
  }
}

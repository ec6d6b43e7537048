// `npm run bench -- NAME [options]`: measures this working tree. Without a name it lists what there is.
import { parseArgs } from 'node:util';
import { SIZE_OPTIONS } from './bench/size-options.mjs';
import { progress, runCommand, SIGNALS } from './prepare.mjs';

const BENCHES = {
  steps: 'cost per agent step: raw client, engine in process, whole platform, and the store alone',
  stream: 'stored event to SSE client, listeners, end of a stream',
  streams: 'open streams per gateway, memory each, fan-out to many listeners',
  replay: 'whole sessions and pages of them, beside a plain read of the store',
  runs: 'runs at once on one runner, and what durability costs per step, hop by hop',
  create: 'durable run creation, with and without a runner',
  start: 'time to ready, memory, idle cost and bundle sizes of npm start',
  size: 'replicas, nodes and storage for a peak: calculated, nothing is run',
};
const USAGE = `npm run bench -- NAME [--json] [--quick] [--profile]

${Object.entries(BENCHES)
  .map(([name, text]) => `  ${name.padEnd(8)}${text}`)
  .join('\n')}

  --json     one line of JSON per figure on standard output
  --quick    fewer steps and repetitions: to see that it works, not to compare
  --profile  where the processes' CPU time goes, by module (steps, create)

of size, with what is assumed:

${Object.entries(SIZE_OPTIONS)
  .map(([name, usual]) => `  --${name} ${usual}`)
  .join('\n')}`;

const LIMIT_MS = 15 * 60_000;
await runCommand(import.meta.url, main);

async function main() {
  const flag = { type: 'boolean', default: false };
  const sizes = Object.fromEntries(Object.keys(SIZE_OPTIONS).map((option) => [option, { type: 'string' }]));
  const options = { json: flag, quick: flag, profile: flag, ...sizes };
  const { values, positionals } = parseArgs({ allowPositionals: true, options });
  const [name] = positionals;
  if (name === undefined || !Object.hasOwn(BENCHES, name)) {
    process.stdout.write(`${USAGE}\n`);
    return name === undefined ? 0 : 2;
  }
  const peak = peakOf(values);
  const { build } = await import('./build.mjs');
  if (name !== 'size') await build(progress);
  // Quiet servers, as in production under load: their log lines are no part of what is measured.
  process.env.MARGAY_LOG_LEVEL ??= 'warn';
  const { Closing } = await import('./bench/shared/closing.mjs');
  const { Report } = await import('./bench/shared/report.mjs');
  const { run } = await import(`./bench/${name}.mjs`);
  const closing = new Closing();
  for (const signal of SIGNALS) process.once(signal, () => void closing.close().finally(() => process.exit(130)));
  // Whatever hangs, a bench ends: what it started is ended by `closing`.
  const late = setTimeout(() => {
    progress(`error: ${name} was not over in ${LIMIT_MS / 60_000} minutes`);
    void closing.close().finally(() => process.exit(1));
  }, LIMIT_MS);
  const report = new Report({ bench: name, isJson: values.json, write: (line) => process.stdout.write(`${line}\n`) });
  try {
    await run({ report, closing, progress, isQuick: values.quick, isProfiled: values.profile, peak });
    report.end();
  } finally {
    clearTimeout(late);
    await closing.close();
  }
  return 0;
}

/** Of `size`. @throws names an option that is no positive number */
function peakOf(values) {
  const numberOf = ([option, usual]) => {
    const number = Number(values[option] ?? usual);
    if (!(number > 0 && Number.isFinite(number)))
      throw new Error(`--${option} is no number above 0: ${values[option]}`);
    return [option, number];
  };
  return Object.fromEntries(Object.entries(SIZE_OPTIONS).map(numberOf));
}

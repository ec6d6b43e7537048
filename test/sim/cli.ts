import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { NOT_SWITCHED, RULES, isRule, type Rule } from './rules';
import { simulate, type SimulationResult } from './simulate';
import { serveAsWorker, WorkerPool, type Task } from './worker-pool';

const USAGE = `npm run test:sim -- [--seeds FROM-TO] [--off RULE,…] [--stress] [--trace SEED] [--ablate]

  --seeds   seeds to play, default 1-1000
  --off     plays without these rules, to see what they prevent
  --stress  more fail-overs, losses and slow majorities
  --trace   prints all that happens in one seed
  --ablate  for each rule (of --off, or all) the first seed of the range that shows its absence

${Object.entries(RULES)
  .map(([rule, text]) => `  ${rule.padEnd(24)} ${text}`)
  .join('\n')}
`;
const CHUNK = 20;
const SHOWN = 20;

interface Range {
  from: number;
  to: number;
}

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      seeds: { type: 'string', default: '1-1000' },
      off: { type: 'string', default: '' },
      trace: { type: 'string' },
      stress: { type: 'boolean', default: false },
      ablate: { type: 'boolean', default: false },
      workers: { type: 'string', default: String(Math.min(4, availableParallelism())) },
      help: { type: 'boolean', default: false },
    },
  });
  const off = values.off.split(',').filter((name) => name !== '');
  const [from, to = from] = values.seeds.split('-').map(Number);
  if (values.help || !off.every(isRule) || !Number.isInteger(from) || !Number.isInteger(to)) {
    print(USAGE);
    return values.help ? 0 : 2;
  }
  const range = { from: from as number, to: to as number };
  if (values.trace !== undefined) return trace(Number(values.trace), off as Rule[], values.stress);
  const pool = new WorkerPool(Number(values.workers));
  try {
    return values.ablate
      ? await ablate(pool, range, off as Rule[], values.stress)
      : await play(pool, range, off, values.stress);
  } finally {
    pool.close();
  }
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

async function trace(seed: number, off: Rule[], isStress: boolean): Promise<number> {
  const result = await simulate({ seed, off: new Set(off), isStress, onTrace: print });
  for (const { kind, detail, atMs } of result.violations) print(`${atMs.toFixed(2)} ${kind}: ${detail}`);
  return result.violations.length === 0 ? 0 : 1;
}

async function play(pool: WorkerPool, { from, to }: Range, off: string[], isStress: boolean): Promise<number> {
  const startedMs = performance.now();
  const totals = { seeds: 0, failed: 0, events: 0, virtualMs: 0 };
  const counts = new Map<string, number>();
  const tasks: Task[] = [];
  for (let first = from; first <= to; first += CHUNK)
    tasks.push({ from: first, to: Math.min(to, first + CHUNK - 1), off, isStress, stopAtFirst: false });
  await pool.run(tasks, (result) => {
    totals.seeds++;
    totals.events += result.events;
    totals.virtualMs += result.virtualMs;
    for (const [what, count] of result.counts) counts.set(what, (counts.get(what) ?? 0) + count);
    if (result.violations.length > 0 && totals.failed++ < SHOWN) print(describe(result));
  });
  const elapsedMs = performance.now() - startedMs;
  for (const what of [...counts.keys()].sort()) print(`${String(counts.get(what)).padStart(9)}  ${what}`);
  print(
    `${totals.seeds} seeds, ${totals.failed} failed; ${(elapsedMs / 1_000).toFixed(1)} s, ` +
      `${(elapsedMs / totals.seeds).toFixed(1)} ms, ${(totals.events / totals.seeds).toFixed(0)} events and ` +
      `${(totals.virtualMs / totals.seeds / 1_000).toFixed(0)} s of virtual time per seed`,
  );
  if (totals.failed > 0) print(`replay one: npm run test:sim -- --trace SEED${isStress ? ' --stress' : ''}`);
  return totals.failed === 0 ? 0 : 1;
}

function describe({ seed, violations }: SimulationResult): string {
  const lines = violations.slice(0, 3).map(({ kind, detail }) => `  ${kind}: ${detail.slice(0, 200)}`);
  return [`seed ${seed} failed`, ...lines].join('\n');
}

async function ablate(pool: WorkerPool, { from, to }: Range, only: Rule[], isStress: boolean): Promise<number> {
  let isEachCaught = true;
  const rules = only.length > 0 ? only : (Object.keys(RULES) as Rule[]);
  const found = new Map<string, SimulationResult>();
  const tasks = rules.map((rule) => ({ from, to, off: [rule], isStress, stopAtFirst: true }));
  await pool.run(tasks, (result, task) => {
    if (result.violations.length > 0) found.set(task.off[0] as string, result);
  });
  for (const rule of rules) {
    const result = found.get(rule);
    const first = result?.violations[0];
    isEachCaught &&= result !== undefined;
    const seen = result && first ? `seed ${result.seed}: ${first.kind}` : 'NOT CAUGHT';
    print(`${rule.padEnd(24)} ${seen.padEnd(38)} ${RULES[rule]}`);
  }
  print('\nwithout a switch:');
  for (const [rule, why] of NOT_SWITCHED) print(`  ${rule}: ${why}`);
  return isEachCaught ? 0 : 1;
}

// A reader such as `head` may go before we are done.
process.stdout.on('error', () => process.exit(1));
if (process.send) serveAsWorker();
else
  main().then(
    (code) => (process.exitCode = code),
    (error: unknown) => {
      process.stderr.write(`${(error as Error).stack}\n`);
      process.exitCode = 1;
    },
  );

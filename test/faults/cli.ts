import { parseArgs } from 'node:util';
import { PlatformHarness } from '../e2e/harness';
import { planFaults } from './plan';
import { playRound } from './round';
import { faultScript } from './script';

const USAGE = `npm run test:faults -- [--kills N] [--seed S] [--actors N]

Kills, stops and restarts the processes of a platform at random points while users run tools that count, then
checks the stored logs, what clients recorded, and the effects in the workspaces.

  --kills   how many faults, default 60
  --seed    which faults; the same seed plays the same ones at the same times. Default: a new one, printed
  --actors  users at the same time, default 4
`;
const SETTLE_MS = 90_000;

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      kills: { type: 'string', default: '60' },
      seed: { type: 'string', default: String(Date.now() % 1_000_000) },
      actors: { type: 'string', default: '4' },
      help: { type: 'boolean', default: false },
    },
  });
  const [kills, seed, actors] = [values.kills, values.seed, values.actors].map(Number) as [number, number, number];
  if (values.help || ![kills, seed, actors].every((value) => Number.isInteger(value) && value >= 0)) {
    print(USAGE);
    return values.help ? 0 : 2;
  }
  print(`seed ${seed}`);
  const margay = new PlatformHarness({ mode: 'combined', runners: 2 });
  try {
    await margay.start();
    margay.script(faultScript);
    const progress = (line: string): void => void process.stderr.write(`${line}\n`);
    const result = await playRound(margay, { faults: planFaults(seed, kills), actors, settleMs: SETTLE_MS, progress });
    for (const violation of result.violations) print(`violation: ${violation}`);
    const { takeoversMs, violations, ...counts } = result;
    const at = (share: number): number =>
      takeoversMs[Math.min(takeoversMs.length - 1, Math.floor(takeoversMs.length * share))] ?? 0;
    print(
      JSON.stringify({
        seed,
        ...counts,
        takeovers: takeoversMs.length,
        p50Ms: at(0.5),
        p99Ms: at(0.99),
        violations: violations.length,
      }),
    );
    return violations.length > 0 ? 1 : 0;
  } finally {
    await margay.stop();
  }
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}

main().then(
  (code) => process.exit(code),
  (error: unknown) => {
    process.stderr.write(`${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
    process.exit(1);
  },
);

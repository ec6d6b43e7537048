import { parseArgs } from 'node:util';
import { FaultWorld } from './fault-world';
import { describe, planFaults } from './plan';
import { report } from './report';
import { playRound } from './round';
import { faultScript } from './script';

const USAGE = `npm run test:faults -- [--kills N] [--seed S] [--actors N] [--parallel N] [--plan]

Strikes at the processes of a whole platform, its broker, its store and what lies between them at random points, while
users run tools that count; then checks the stored commits, what clients recorded, and the effects in the workspaces.

  --kills     how many faults, default 60
  --seed      which faults; the same seed plays the same ones after the same pauses. Default: a new one, printed
  --actors    users at the same time, default 6
  --parallel  faults at the same time, default 2
  --plan      only print what would be played
`;
const SETTLE_MS = 120_000;

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      kills: { type: 'string', default: '60' },
      seed: { type: 'string', default: String(Date.now() % 1_000_000) },
      actors: { type: 'string', default: '6' },
      parallel: { type: 'string', default: '2' },
      plan: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  const numbers = [values.kills, values.seed, values.actors, values.parallel].map(Number);
  if (values.help || !numbers.every((value) => Number.isInteger(value) && value >= 0)) {
    print(USAGE);
    return values.help ? 0 : 2;
  }
  const [kills, seed, actors, parallel] = numbers as [number, number, number, number];
  const faults = planFaults(seed, kills);
  print(`seed ${seed}, ${kills} faults, at most ${parallel} at once, ${actors} users`);
  for (const [index, fault] of faults.entries()) print(`${index + 1}. ${describe(fault)}`);
  return values.plan ? 0 : play(() => new FaultWorld(), { faults, actors, parallel });
}

async function play(
  open: () => FaultWorld,
  options: { faults: ReturnType<typeof planFaults>; actors: number; parallel: number },
): Promise<number> {
  const startedMs = performance.now();
  const world = open();
  const progress = (line: string): void =>
    void process.stderr.write(`${((performance.now() - startedMs) / 1_000).toFixed(1)} s: ${line}\n`);
  try {
    await world.start();
    world.margay.script(faultScript);
    const result = await playRound(world, { ...options, settleMs: SETTLE_MS, progress });
    for (const line of report(result)) print(line);
    print(`took ${Math.round((performance.now() - startedMs) / 1_000)} s`);
    return result.violations.length > 0 ? 1 : 0;
  } finally {
    await world.stop();
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

import { cp } from 'node:fs/promises';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { FaultWorld } from './fault-world';
import { describe, FAULT_KINDS, planFaults } from './plan';
import { report } from './report';
import { MEMORY_EATER, NEIGHBOURS } from './memory';
import { playRound, type RoundOptions, type RoundResult } from './round';
import { faultScript } from './script';

const USAGE = `npm run test:faults -- [--kills N] [--seed S] [--actors N] [--parallel N] [--only KINDS] [--logs FOLDER] [--plan]
npm run test:faults -- --scenario memory

Strikes at the processes of a whole platform, its broker, its store and what lies between them at random points, while
users run tools that count; then checks the stored commits, what clients recorded, and the effects in the workspaces.

  --kills     how many faults, default 60
  --seed      which faults; the same seed plays the same ones after the same pauses. Default: a new one, printed
  --actors    users at the same time, default 6
  --parallel  faults at the same time, default 1
  --only      kinds of faults, separated by commas: ${FAULT_KINDS.join(', ')}
  --logs      where the logs of all processes are kept
  --plan      only print what would be played
  --scenario  memory: one run eats the memory of whoever drives it; it is parked, and its neighbours end well
`;
const SETTLE_MS = 120_000;

async function main(): Promise<number> {
  const { values } = parseArgs({
    options: {
      kills: { type: 'string', default: '60' },
      seed: { type: 'string', default: String(Date.now() % 1_000_000) },
      actors: { type: 'string', default: '6' },
      parallel: { type: 'string', default: '1' },
      only: { type: 'string', default: FAULT_KINDS.join() },
      logs: { type: 'string' },
      scenario: { type: 'string', default: 'random' },
      plan: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  });
  const only = values.only.split(',');
  const [kills, seed, actors, parallel] = [values.kills, values.seed, values.actors, values.parallel].map(Number);
  const isRight =
    [kills, seed, actors, parallel].every(isCount) &&
    only.every((kind) => FAULT_KINDS.includes(kind)) &&
    ['random', 'memory'].includes(values.scenario);
  if (values.help || !isRight) {
    print(USAGE);
    return values.help ? 0 : 2;
  }
  if (values.scenario === 'memory') return playMemory(values.logs);
  return playRandom({ seed, kills, actors, parallel, only, logs: values.logs } as Choice, values.plan);
}

interface Choice {
  seed: number;
  kills: number;
  actors: number;
  parallel: number;
  only: string[];
  logs: string | undefined;
}

async function playRandom({ seed, kills, actors, parallel, only, logs }: Choice, isPlanOnly: boolean): Promise<number> {
  const faults = planFaults(seed, kills, only);
  print(`seed ${seed}, ${kills} faults, at most ${parallel} at once, ${actors} users`);
  for (const [index, fault] of faults.entries()) print(`${index + 1}. ${describe(fault)}`);
  if (isPlanOnly) return 0;
  const result = await play(new FaultWorld(), { faults, actors, parallel, logs });
  return result.violations.length > 0 ? 1 : 0;
}

async function playMemory(logs: string | undefined): Promise<number> {
  print(`one run that eats the memory of whoever drives it, beside ${NEIGHBOURS} others`);
  const result = await play(new FaultWorld({ env: MEMORY_EATER, respawn: true }), {
    faults: [],
    actors: 1 + NEIGHBOURS,
    parallel: 1,
    logs,
  });
  if (result.parked !== 1) print(`${result.parked} runs were parked instead of the one`);
  return result.violations.length > 0 || result.parked !== 1 ? 1 : 0;
}

type Played = Pick<RoundOptions, 'faults' | 'actors' | 'parallel'> & { logs: string | undefined };

async function play(world: FaultWorld, { logs, ...options }: Played): Promise<RoundResult> {
  const startedMs = performance.now();
  const seconds = (): string => ((performance.now() - startedMs) / 1_000).toFixed(1);
  const progress = (line: string): void => void process.stderr.write(`${seconds()} s: ${line}\n`);
  for (const signal of ['SIGINT', 'SIGTERM'] as const)
    process.once(signal, () => void world.stop().finally(() => process.exit(130)));
  try {
    await world.start();
    world.margay.script(faultScript);
    const result = await playRound(world, { ...options, settleMs: SETTLE_MS, progress });
    for (const line of report(result)) print(line);
    print(`took ${seconds()} s`);
    return result;
  } finally {
    if (logs !== undefined) await cp(join(world.margay.home, 'logs'), logs, { recursive: true });
    await world.stop();
  }
}

const isCount = (value: number | undefined): boolean => Number.isInteger(value) && (value as number) >= 0;

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

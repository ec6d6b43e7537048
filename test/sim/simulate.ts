import type { Cast } from './cast';
import { checkAnswers } from './check-answers';
import { checkLog } from './check-log';
import { checkProjections, checkReaders } from './check-views';
import { Clients } from './clients';
import { Epilogue } from './epilogue';
import { Faults } from './faults';
import { Gateway } from './gateway';
import { logOf, rest } from './rest';
import { Reader } from './reader';
import { Replica } from './replica';
import { Runner } from './runner';
import { World, type Violation, type WorldOptions } from './world';

const FAULTS_MS = 20_000;

export interface SimulationResult {
  seed: number;
  violations: Violation[];
  counts: Map<string, number>;
  events: number;
  virtualMs: number;
}

/** Plays one seed from the first command to the last check. */
export async function simulate(options: WorldOptions): Promise<SimulationResult> {
  const world = new World(options);
  const cast = createCast(world);
  new Faults(world, cast).start();
  await world.time.run(FAULTS_MS, () => false);
  heal(world, cast);
  await rest(world, cast);
  await new Epilogue(world, cast).play();
  check(world, cast);
  const { violations, counts, time } = world;
  return { seed: options.seed, violations, counts, events: time.events, virtualMs: time.nowMs };
}

function createCast(world: World): Cast {
  const { random } = world;
  const many = <T>(count: number, create: (index: number) => T): T[] =>
    Array.from({ length: count }, (_, i) => create(i));
  const replicas = many(random.integer(2, 3), (i) => new Replica(world, `session${i}`));
  const runners = many(random.integer(2, 3), (i) => new Runner(world, `runner${i}`, replicas));
  const gateways = many(2, (i) => new Gateway(world, `gateway${i}`, replicas));
  const readers = many(3, (i) => new Reader(world, `reader${i}`, gateways, i === 2 ? 'seq' : 'ts'));
  const clients = new Clients(world, replicas);
  for (const process of [...replicas, ...runners, ...gateways, ...readers, clients]) process.boot();
  return { replicas, runners, gateways, readers, clients };
}

function heal(world: World, { replicas, runners, gateways }: Cast): void {
  world.areFaultsOn = false;
  world.store.failOverDuringInsert(0);
  world.broker.isUp = true;
  for (const process of [...replicas, ...runners, ...gateways]) {
    process.start();
    process.continue();
  }
  world.trace('world', 'no more faults');
}

function check(world: World, { readers }: Cast): void {
  const documents = logOf(world);
  checkLog(world, documents);
  checkAnswers(world, documents);
  checkProjections(world, documents);
  checkReaders(world, documents, readers);
  world.count('commits', documents.length);
  world.count('runs', documents.at(-1)?.head.runNo ?? 0);
  world.count('frames', documents.at(-1)?.head.seq ?? 0);
}

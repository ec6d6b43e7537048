import type { Cast } from './cast';
import { Executor } from './sandbox/executor';
import { checkEffects } from './checks/check-effects';
import { checkPoison } from './checks/check-poison';
import { checkWaiting } from './checks/check-waiting';
import { checkAnswers } from './checks/check-answers';
import { checkLog } from './checks/check-log';
import { checkProjections, checkReaders } from './checks/check-views';
import { Clients } from './clients/clients';
import { playEpilogue } from './scenes/epilogue';
import { Faults } from './scenes/faults';
import { Gateway } from './streams/gateway';
import { rest } from './scenes/rest';
import { Reader } from './streams/reader';
import { Replica } from './session/replica';
import { Runner } from './runner/runner';
import { World, type Violation, type WorldOptions } from './world/world';

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
  const note = (error: unknown): void => world.fail('unhandled rejection', String((error as Error).stack));
  process.on('unhandledRejection', note);
  try {
    return await play(world, options.seed);
  } finally {
    // Node tells of rejections once nothing else is to be done.
    await new Promise((resolve) => setImmediate(resolve));
    process.off('unhandledRejection', note);
  }
}

async function play(world: World, seed: number): Promise<SimulationResult> {
  const cast = createCast(world);
  new Faults(world, cast).start();
  await world.time.run(FAULTS_MS, () => false);
  heal(world, cast);
  await rest(world, cast);
  await playEpilogue(world, cast);
  check(world, cast);
  const { violations, counts, time } = world;
  return { seed, violations, counts, events: time.events, virtualMs: time.nowMs };
}

function createCast(world: World): Cast {
  const { random } = world;
  const many = <T>(count: number, create: (index: number) => T): T[] =>
    Array.from({ length: count }, (_, i) => create(i));
  const replicas = many(random.integer(2, 3), (i) => new Replica(world, `session${i}`));
  const executors = many(2, (i) => new Executor(world, `executor${i}`));
  const runners = many(random.integer(2, 3), (i) => new Runner(world, `runner${i}`, replicas, executors));
  const gateways = many(2, (i) => new Gateway(world, `gateway${i}`, replicas));
  const sessionOf = (i: number): string => world.sessionIds[i % world.sessionIds.length] as string;
  const readers = many(3, (i) => new Reader(world, `reader${i}`, sessionOf(i), gateways, i === 2 ? 'seq' : 'ts'));
  const clients = new Clients(world, replicas);
  for (const process of [...replicas, ...executors, ...runners, ...gateways, ...readers, clients]) process.boot();
  return { replicas, runners, executors, gateways, readers, clients };
}

function heal(world: World, { replicas, runners, executors, gateways }: Cast): void {
  world.areFaultsOn = false;
  world.store.failOverDuringInsert(0);
  world.broker.isUp = true;
  for (const process of [...replicas, ...runners, ...executors, ...gateways]) {
    process.start();
    process.continue();
  }
  world.trace('world', 'no more faults');
}

function check(world: World, { readers }: Cast): void {
  for (const sessionId of world.sessionIds) {
    const documents = world.store.documentsOf(sessionId);
    checkLog(world, sessionId, documents);
    checkAnswers(world, sessionId, documents);
    checkProjections(world, sessionId, documents);
    checkEffects(world, sessionId, documents);
    checkWaiting(world, documents);
    checkPoison(world, documents);
    checkReaders(
      world,
      documents,
      readers.filter((reader) => reader.sessionId === sessionId),
    );
    world.count('commits', documents.length);
    world.count('runs', documents.at(-1)?.head.runNo ?? 0);
    world.count('frames', documents.at(-1)?.head.seq ?? 0);
  }
}

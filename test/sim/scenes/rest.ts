import type { Cast } from '../cast';
import type { World } from '../world/world';

/** All must come to rest within this once nothing fails any more. */
export const REST_MS = 150_000;
const LOOK_EVERY_MS = 250;

/** What is still under way; undefined when all is done. */
function unrest(world: World, { readers, replicas, clients }: Cast): string | undefined {
  const { store } = world;
  if (clients.playing > 0) return 'clients wait for answers';
  if (!store.isUp) return 'the store is down';
  for (const sessionId of world.sessionIds) {
    const head = store.headOf(sessionId);
    if (!head) return `${sessionId} does not exist`;
    if (head.run) return `run ${JSON.stringify(head.run)} at epoch ${head.epoch}`;
  }
  if (store.due.size > 0) return `effects of ${[...store.due.keys()].join(' ')}`;
  for (const replica of replicas) if (!replica.isAlive || replica.isPaused) return `${replica.name} is not back`;
  for (const { name, frames, isAtEnd, sessionId } of readers) {
    const seq = store.headOf(sessionId)?.seq ?? 0;
    const last = frames.at(-1)?.seq ?? 0;
    if (!isAtEnd || last < seq) return `${name} has frames up to ${last} of ${seq}`;
  }
  return undefined;
}

/** Lets time pass until nothing is unmet. @returns what still is when the time is over */
export async function until(
  world: World,
  limitMs: number,
  unmet: () => string | undefined,
  everyMs = LOOK_EVERY_MS,
): Promise<string | undefined> {
  let left: string | undefined = 'nothing happened';
  let isDone = false;
  const look = (): void => {
    left = unmet();
    isDone = left === undefined;
    if (!isDone) world.time.at(everyMs, look);
  };
  world.time.at(0, look);
  await world.time.run(world.time.nowMs + limitMs, () => isDone);
  return left;
}

export async function rest(world: World, cast: Cast): Promise<void> {
  const left = await until(world, REST_MS, () => unrest(world, cast));
  if (left !== undefined) world.fail('stuck', left);
}

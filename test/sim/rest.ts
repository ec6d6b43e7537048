import { commitKey, type CommitDocument } from '@margay/log';
import type { Cast } from './cast';
import type { World } from './world';

/** All must come to rest within this once nothing fails any more. */
export const REST_MS = 150_000;
const LOOK_EVERY_MS = 250;

/** The session's commits in order, as the store's primary has them. */
export function logOf(world: World): CommitDocument[] {
  const documents: CommitDocument[] = [];
  for (let c = 1; ; c++) {
    const entry = world.store.entries.get(commitKey(world.sessionId, c));
    if (!entry) return documents;
    documents.push(entry.document);
  }
}

/** What is still under way; undefined when all is done. */
function unrest(world: World, { readers, replicas, clients }: Cast): string | undefined {
  const { store } = world;
  const documents = logOf(world);
  const last = documents[documents.length - 1];
  if (!last) return 'the session does not exist';
  if (clients.playing > 0) return 'clients wait for answers';
  if (!store.isUp) return 'the store is down';
  if (last.head.run) return `run ${JSON.stringify(last.head.run)} at epoch ${last.head.epoch}`;
  if (store.due.size > 0) return `effects of ${[...store.due.keys()].join(' ')}`;
  for (const replica of replicas) if (!replica.isAlive || replica.isPaused) return `${replica.name} is not back`;
  for (const { name, frames, isAtEnd } of readers)
    if (!isAtEnd || frames.length < last.head.seq) return `${name} has ${frames.length} of ${last.head.seq} frames`;
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

import type { Cast } from '../cast';
import { Reader } from '../streams/reader';
import type { World } from '../world/world';
import { rest } from './rest';
import { answers, SCENES } from './scenes';
import { Stage } from './stage';

/** After this without faults nobody stops or is lost any more for what went wrong before. */
const CALM_MS = 12_000;

/** One scene in the calm, and a last look at everything. */
export async function playEpilogue(world: World, cast: Cast): Promise<void> {
  const stage = new Stage(world, cast);
  if (stage.sessionId !== '') {
    await stage.pass(CALM_MS);
    await world.random.pick(SCENES)(stage);
    await rest(world, cast);
  }
  for (const replica of cast.replicas) await answers(stage, replica);
  comeNew(world, cast);
  await rest(world, cast);
}

/** Somebody who was never there reads all of each session. */
function comeNew(world: World, cast: Cast): void {
  for (const sessionId of world.sessionIds) {
    const newcomer = new Reader(world, `new ${sessionId}`, sessionId, cast.gateways, 'seq', true);
    cast.readers.push(newcomer);
    newcomer.boot();
  }
}

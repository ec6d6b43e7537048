import { FaultWorld } from './fault-world';
import { planShort } from './plan';
import { playRound } from './round';
import { faultScript } from './script';

const world = new FaultWorld();

beforeAll(() => world.start(), 600_000);
afterAll(() => world.stop());

/** One of many; `npm run test:faults` plays others, and longer. */
const SEED = 7;

it(`keeps its promises through deaths, pauses and partitions of its processes and servers (seed ${SEED})`, async () => {
  world.margay.script(faultScript);
  const options = { faults: planShort(SEED), actors: 4, parallel: 2, settleMs: 60_000, progress: () => undefined };
  const result = await playRound(world, options);
  expect(result.violations).toEqual([]);
  expect(result.runs).toBeGreaterThan(4);
  expect(result.terminalEvents).toBe(result.runs);
  expect(result.takeovers.filter(({ strike }) => strike?.fault.kind === 'kill').length).toBeGreaterThan(0);
}, 240_000);

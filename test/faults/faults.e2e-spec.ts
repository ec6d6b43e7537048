import { PlatformHarness } from '../e2e/harness';
import { planFaults } from './plan';
import { playRound } from './round';
import { faultScript } from './script';

/** One of many; `npm run test:faults` plays others, and longer. */
const SEED = 7;
const FAULTS = 6;

const margay = new PlatformHarness({ mode: 'combined', runners: 2 });

beforeAll(() => margay.start(), 600_000);
afterAll(() => margay.stop(), 60_000);

it(`keeps its promises through ${FAULTS} deaths and pauses of its processes (seed ${SEED})`, async () => {
  margay.script(faultScript);
  const result = await playRound(margay, {
    faults: planFaults(SEED, FAULTS),
    actors: 3,
    settleMs: 60_000,
    progress: () => undefined,
  });
  expect(result.violations).toEqual([]);
  expect(result.runs).toBeGreaterThan(3);
}, 120_000);

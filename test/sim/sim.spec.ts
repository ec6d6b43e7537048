import type { Rule } from './rules';
import { simulate } from './simulate';

const SEEDS = 200;
/** Enough for the rules below; `npm run test:sim -- --ablate` shows the first seed for each rule. */
const ABLATED_SEEDS = 40;

async function failures(seeds: number, off: Rule[] = [], isStress = false): Promise<string[]> {
  const found: string[] = [];
  for (let seed = 1; seed <= seeds; seed++) {
    const { violations } = await simulate({ seed, off: new Set(off), isStress });
    for (const { kind, detail } of violations) found.push(`seed ${seed} ${kind}: ${detail}`);
  }
  return found;
}

describe('the session log under seeded faults', () => {
  it(`keeps every promise in ${SEEDS} seeds`, async () => {
    expect(await failures(SEEDS)).toEqual([]);
  }, 120_000);

  it('keeps every promise under stress', async () => {
    expect(await failures(SEEDS / 3, [], true)).toEqual([]);
  }, 120_000);

  it('plays the same seed the same way', async () => {
    const play = async (): Promise<string[]> => {
      const lines: string[] = [];
      await simulate({ seed: 7, off: new Set(), isStress: true, onTrace: (line) => lines.push(line) });
      return lines;
    };
    const first = await play();
    expect(first.length).toBeGreaterThan(100);
    expect(await play()).toEqual(first);
  });

  it.each<Rule>(['freshRejections', 'finishNeedsInbox', 'uniqueCommitIds'])(
    'shows what is lost without the rule %s',
    async (rule) => {
      expect(await failures(ABLATED_SEEDS, [rule])).not.toEqual([]);
    },
    60_000,
  );
});

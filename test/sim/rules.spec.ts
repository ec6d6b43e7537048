import { RULES, type Rule } from './rules';
import { simulate } from './simulate';

const SEED = 3;
const PATIENCE_MS = 120_000;

async function broken(off: Rule[], lines: string[] = []): Promise<string[]> {
  const onTrace = (line: string): void => void lines.push(line);
  const { violations } = await simulate({ seed: SEED, off: new Set(off), isStress: false, onTrace });
  return violations.map(({ kind, detail }) => `${kind}: ${detail}`);
}

describe('a seed', () => {
  it(
    'is played the same way each time, and breaks nothing',
    async () => {
      const first: string[] = [];
      const second: string[] = [];
      expect(await broken([], first)).toEqual([]);
      await broken([], second);
      expect(first.length).toBeGreaterThan(100);
      expect(second).toEqual(first);
    },
    PATIENCE_MS,
  );

  // `npm run test:sim -- --ablate` finds a seed for every rule.
  it.each<Rule>(['freshRejections', 'uniqueCommitIds', 'storedBeforeActing', 'outsideGuard'])(
    'shows what is lost without the rule %s',
    async (rule) => expect(await broken([rule])).not.toEqual([]),
    PATIENCE_MS,
  );
});

it('names the section of each rule', () => {
  for (const text of Object.values(RULES)) expect(text).toMatch(/^§[1-8](\.\d+)? /);
});

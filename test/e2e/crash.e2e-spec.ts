import { scriptOf, type CrashRow } from './crash/crash-row';
import { CrashWorld } from './crash/crash-world';
import { OUTER_ROWS } from './crash/outer-rows';
import { RACE_ROWS } from './crash/race-rows';
import { RUNNER_ROWS } from './crash/runner-rows';
import { SESSION_ROWS } from './crash/session-rows';
import { Stage, type Seen } from './crash/stage';

const ROWS: readonly CrashRow[] = [...RUNNER_ROWS, ...SESSION_ROWS, ...RACE_ROWS, ...OUTER_ROWS];

const faultsOf = ({ faults }: CrashRow, row: number): string[] => faults?.(`run-${row}-0`) ?? [];
/** Faults of this row and all behind it. */
const planFrom = (first: number): string[] => ROWS.flatMap((row, n) => (n < first ? [] : faultsOf(row, n)));

const world = new CrashWorld(planFrom(0));
const figures: string[] = [];

beforeAll(() => world.start(), 600_000);
afterAll(async () => {
  await world.stop();
  process.stdout.write(`${figures.join('\n')}\n`);
}, 180_000);

/** The table of crash points in docs/protocol.md §5, one test per row; what holds in each is what test/faults checks. */
describe('crash points', () => {
  it.each(ROWS.map((row, n) => [row.name, row, n] as const))(
    '%s',
    async (_, row, n) => {
      await world.beginRow(planFrom(n + 1));
      const stage = new Stage(world, n);
      await stage.enter();
      world.margay.script(scriptOf(row, stage));
      await (row.play?.(stage) ?? stage.playOne());
      await world.whole();
      const seen = await stage.check();
      const { isMeant = /^$/, takeovers, unknown = 0 } = row;
      const violations = seen.flatMap((user) => user.violations).filter(({ text }) => !isMeant.test(text));
      expect(violations).toEqual([]);
      for (const point of pointsOf(row, n)) expect([point, await world.strikes(point)]).not.toEqual([point, 0]);
      expect(sum(seen, (user) => user.takeovers.length)).toBe(takeovers);
      expect(sum(seen, (user) => user.unknown)).toBe(unknown);
      note(row, seen);
    },
    240_000,
  );
});

function pointsOf(row: CrashRow, n: number): string[] {
  return [...new Set(faultsOf(row, n).map((fault) => fault.split('=')[0] ?? ''))];
}

const sum = (seen: readonly Seen[], of: (user: Seen) => number): number =>
  seen.reduce((total, user) => total + of(user), 0);

/** How long it took from a death to the first word of the next owner. */
function note({ name }: CrashRow, seen: readonly Seen[]): void {
  const died = world.deaths.find(({ process }) => process.startsWith('agent-runner'))?.at;
  for (const { queuedAt, claimedAt, firstWordAt } of seen.flatMap(({ takeovers }) => takeovers)) {
    const after = (at: number | undefined): string =>
      at === undefined ? '–' : ((at - (died ?? queuedAt)) / 1_000).toFixed(2);
    const from = died === undefined ? 'it was taken back' : 'death';
    figures.push(
      `takeover, from ${from}: queued ${after(queuedAt)} s, claimed ${after(claimedAt)} s, first word ${after(firstWordAt)} s (${name})`,
    );
  }
}

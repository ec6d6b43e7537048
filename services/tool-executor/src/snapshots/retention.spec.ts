import { chainTo, mayGrow, outdated } from './retention';

const DAY_MS = 24 * 3_600_000;
const NOW = Date.UTC(2031, 4, 20, 12);
const at = (daysAgo: number) => new Date(NOW - daysAgo * DAY_MS);
const archive = (n: number, base = 0, daysAgo = 0, bytes = 100) => ({ n, base, at: at(daysAgo), bytes });
const numbers = (archives: { n: number }[]) => archives.map(({ n }) => n);

describe('the chain of an archive', () => {
  const archives = [archive(1), archive(2, 1), archive(3, 2), archive(4), archive(5, 3)];

  it('begins with the full archive it is based on', () => {
    expect(numbers(chainTo(archives, 3))).toEqual([1, 2, 3]);
    expect(numbers(chainTo(archives, 5))).toEqual([1, 2, 3, 5]);
    expect(numbers(chainTo(archives, 4))).toEqual([4]);
  });

  it('is empty where a part of it is missing, or bases turn in a circle', () => {
    expect(chainTo([archive(2, 1), archive(3, 2)], 3)).toEqual([]);
    expect(chainTo(archives, 9)).toEqual([]);
    expect(chainTo([archive(1, 2), archive(2, 1)], 2)).toEqual([]);
  });
});

describe('a full archive is due', () => {
  const deltas = (count: number, bytes: number) =>
    Array.from({ length: count }, (_, i) => archive(i + 2, i + 1, 0, bytes));

  it('at first, after ten deltas, and when they outweigh half of it', () => {
    expect(mayGrow([])).toBe(false);
    expect(mayGrow([archive(1)])).toBe(true);
    expect(mayGrow([archive(1), ...deltas(9, 1)])).toBe(true);
    expect(mayGrow([archive(1), ...deltas(10, 1)])).toBe(false);
    expect(mayGrow([archive(1), archive(2, 1, 0, 50)])).toBe(true);
    expect(mayGrow([archive(1), archive(2, 1, 0, 51)])).toBe(false);
  });
});

describe('archives that are not kept', () => {
  it('are those beyond the newest three and the last ones of seven days', () => {
    const archives = [
      archive(1, 0, 9),
      archive(2, 0, 7),
      archive(3, 0, 6),
      archive(4, 0, 2.1),
      archive(5, 0, 2),
      archive(6, 0, 0.3),
      archive(7, 0, 0.2),
      archive(8, 0, 0.1),
      archive(9, 0, 0),
    ];
    expect(numbers(outdated(archives, NOW)).sort()).toEqual([1, 2, 4, 6]);
  });

  it('are never the bases of those that are', () => {
    const archives = [archive(1, 0, 20), archive(2, 1, 19), archive(3, 2, 18), archive(4, 0, 17), archive(5, 3, 0)];
    expect(outdated(archives, NOW)).toEqual([]);
    expect(numbers(outdated([...archives, archive(6), archive(7), archive(8)], NOW))).toEqual([5, 4, 3, 2, 1]);
  });
});

import type { Archive } from './archive-store';

type Facts = Pick<Archive, 'n' | 'base' | 'at' | 'bytes'>;

const NEWEST = 3;
const DAYS = 7;
const DAY_MS = 24 * 3_600_000;
const DELTAS_MAX = 10;

/** The archive of that number behind the full one and the deltas it says the difference to. @returns nothing if one is missing */
export function chainTo<T extends Facts>(archives: readonly T[], n: number): T[] {
  const byNumber = new Map(archives.map((archive) => [archive.n, archive]));
  const chain: T[] = [];
  for (let next = byNumber.get(n); next; next = byNumber.get(next.base)) {
    chain.unshift(next);
    if (next.base === 0) return chain;
    // A base is older, so the way down ends.
    if (next.base >= next.n) return [];
  }
  return [];
}

/** Whether the next archive may be a delta to this chain: after ten, or when they outweigh half of it, a full one is due. */
export function mayGrow(chain: readonly Facts[]): boolean {
  const [full, ...deltas] = chain;
  if (!full) return false;
  const bytes = deltas.reduce((sum, delta) => sum + delta.bytes, 0);
  return deltas.length < DELTAS_MAX && bytes * 2 <= full.bytes;
}

/** Kept are the newest three and the last one of each of seven days, with what they are based on. @returns the others */
export function outdated<T extends Facts>(archives: readonly T[], nowMs: number): T[] {
  const newestFirst = [...archives].sort((a, b) => b.n - a.n);
  const kept = new Set(newestFirst.slice(0, NEWEST));
  const days = new Set<number>();
  for (const archive of newestFirst) {
    const day = Math.floor(archive.at.getTime() / DAY_MS);
    if (day <= Math.floor(nowMs / DAY_MS) - DAYS || days.has(day)) continue;
    days.add(day);
    kept.add(archive);
  }
  const needed = new Set([...kept].flatMap(({ n }) => chainTo(archives, n)));
  return newestFirst.filter((archive) => !kept.has(archive) && !needed.has(archive));
}

import type { LeaveCause } from './command';
import type { HeadRun } from './head';

const LOSSES: ReadonlySet<LeaveCause> = new Set(['crash', 'lease', 'failed', 'died']);
const SOON_MICROS = 10 * 60 * 1_000_000;
/** A run that lost so many owners is driven in a process of its own. */
const ISOLATED_FROM = 2;
/** … and where even whole runners die under it, it is given up at last. */
const PARKED_FROM = 8;

/**
 * Takes note of a lost owner. Losses count together where they come within ten minutes, or where the owner had stored
 * nothing; planned hand-overs never count. Neighbours of a run that kills its runner pass through this once.
 * @param ts microseconds since the epoch
 * @returns the run; `parks` where it may not be driven again
 */
export function afterLeaving(run: HeadRun, cause: LeaveCause, ts: number): { run: HeadRun; parks: boolean } {
  const { hasProgress = false, isWoken: _, losses, isolated = false, ...rest } = run;
  if (!LOSSES.has(cause)) return { run: { ...rest, ...(losses ? { losses } : {}), ...(isolated ? { isolated } : {}) }, parks: false }; // prettier-ignore
  const isSoon = losses !== undefined && ts - losses.lastTs < SOON_MICROS;
  const suspicious = losses && (isSoon || !hasProgress) ? losses.suspicious + 1 : 1;
  return {
    run: {
      ...rest,
      losses: { suspicious, lastTs: ts },
      ...(suspicious >= ISOLATED_FROM ? { isolated: true as const } : {}),
    },
    // What died in a process of its own died by itself.
    parks: isolated && (cause === 'died' || cause === 'failed' || suspicious >= PARKED_FROM),
  };
}

import type { SandboxClass } from './classes';
import type { SandboxRow } from './sandbox-row';

const WINDOW_MS = 600_000;
const BUCKET_MS = 10_000;
const SHARE = 0.95;
const USUAL_START_MS = 3_000;

/** How many sandboxes should wait: as many as are claimed while one starts, and one more (cluster §1.9). */
export function poolTarget(recent: readonly SandboxRow[], { warm }: Pick<SandboxClass, 'warm'>, nowMs: number): number {
  if (warm.max === 0) return 0;
  const wanted = Math.ceil(claimsPerSecond(recent, nowMs) * (startMs(recent) / 1_000)) + 1;
  return Math.min(Math.max(wanted, warm.min), warm.max);
}

export const TARGET_WINDOW_MS = WINDOW_MS;

function claimsPerSecond(rows: readonly SandboxRow[], nowMs: number): number {
  const counts = new Array<number>(WINDOW_MS / BUCKET_MS).fill(0);
  for (const { claimedAt } of rows) {
    const age = claimedAt === undefined ? Infinity : nowMs - claimedAt.getTime();
    const bucket = Math.floor(age / BUCKET_MS);
    if (bucket >= 0 && bucket < counts.length) counts[bucket] = (counts[bucket] ?? 0) + 1;
  }
  return quantile(counts) / (BUCKET_MS / 1_000);
}

function startMs(rows: readonly SandboxRow[]): number {
  const times = rows.flatMap(({ startedAt, readyAt }) => (startedAt && readyAt ? [+readyAt - +startedAt] : []));
  return times.length === 0 ? USUAL_START_MS : quantile(times);
}

function quantile(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * SHARE))] ?? 0;
}

import { Random } from '../sim/random';

export type FaultKind = 'kill' | 'stop' | 'restart';

/** One fault: after a pause it hits a process. */
export interface Fault {
  pauseMs: number;
  kind: FaultKind;
  target: string;
  /** How long the process stays away (killed) or still (stopped). */
  durationMs: number;
}

/** One of the sandboxes that run at that moment. */
export const SANDBOX = 'sandbox';
const RUNNERS = ['agent-runner', 'agent-runner-2'];
/** A stopped runner beyond its lease is taken for lost; then it wakes up. */
const BEYOND_LEASE_MS = 18_000;

/** The same seed gives the same faults. */
export function planFaults(seed: number, count: number): Fault[] {
  const random = new Random(seed);
  return Array.from({ length: count }, () => {
    const kind = pickKind(random);
    const target = pickTarget(random, kind);
    const isLong = kind === 'stop' && target !== 'control' && random.chance(0.15);
    return {
      pauseMs: Math.round(random.between(200, 2_500)),
      kind,
      target,
      durationMs: isLong ? BEYOND_LEASE_MS : Math.round(random.between(0, kind === 'stop' ? 4_000 : 1_000)),
    };
  });
}

function pickTarget(random: Random, kind: FaultKind): string {
  const value = random.next();
  if (value < 0.6) return random.pick(RUNNERS);
  return value < 0.8 || kind !== 'kill' ? 'control' : SANDBOX;
}

function pickKind(random: Random): FaultKind {
  const value = random.next();
  if (value < 0.6) return 'kill';
  return value < 0.85 ? 'stop' : 'restart';
}

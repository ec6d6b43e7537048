import type { Fault } from './plan';
import type { StoredCommit } from './stored';

/** A fault as it was struck; times in milliseconds since the epoch. */
export interface Strike {
  fault: Fault;
  startedAt: number;
  endedAt: number;
  /** The life of the runner that it struck. */
  instance?: string;
}

/** A run that changed hands. Times in milliseconds since the epoch. */
export interface Takeover {
  runId: string;
  /** What struck its owner; undefined where nothing did. */
  strike?: Strike;
  /** Other faults that were on meanwhile and may have slowed it down. */
  beside: Strike[];
  noticedAt?: number;
  queuedAt: number;
  claimedAt: number;
  /** First commit of the new owner; undefined where that one was lost before. */
  firstWordAt?: number;
}

export interface Facts {
  strikes: readonly Strike[];
  /** When session processes noticed that this life of a runner was lost. */
  noticedAt: ReadonlyMap<string, readonly number[]>;
}

/** Faults that slow no takeover down. */
const HARMLESS = new Set<Fault['kind']>(['broker-wipe', 'sandbox-kill']);
/** What a pause has broken shows within this time. */
const AFTERMATH_MS = 5_000;
/** A clock that was ahead has left times that others still have to pass. */
const SKEW_AFTERMATH_MS = 35_000;

/** Every change of hands in a log: from the loss of one owner to the claim by the next one, and its first word. */
export function takeoversOf(commits: readonly StoredCommit[], facts: Facts): Takeover[] {
  const found: Takeover[] = [];
  let loss: { runId: string; owner: string; queuedAt: number } | undefined;
  let newest: Takeover | undefined;
  for (const [index, { head, ts0, commitIds }] of commits.entries()) {
    const before = commits[index - 1]?.head.run;
    const at = ts0 / 1_000;
    const isSame = before !== null && before !== undefined && before.id === head.run?.id;
    if (isSame && before.state === 'running' && before.owner !== null && head.run?.state === 'queued') {
      loss = { runId: before.id, owner: before.owner, queuedAt: at };
      newest = undefined;
    } else if (loss && isSame && head.run?.state === 'running') {
      newest = describeTakeover(loss, at, facts);
      found.push(newest);
      loss = undefined;
    } else if (newest && commitIds.some((id) => id.startsWith(`${newest?.runId}.`))) {
      newest.firstWordAt = at;
      newest = undefined;
    }
  }
  return found.map((takeover) => ({ ...takeover, beside: besideOf(takeover, facts) }));
}

function describeTakeover(
  { runId, owner, queuedAt }: { runId: string; owner: string; queuedAt: number },
  claimedAt: number,
  facts: Facts,
): Takeover {
  const strike = facts.strikes.findLast((struck) => struck.instance === owner && isCause(struck, queuedAt));
  const noticedAt = facts.noticedAt.get(owner)?.find((at) => at >= (strike?.startedAt ?? 0));
  return {
    runId,
    beside: [],
    queuedAt,
    claimedAt,
    ...(strike && { strike }),
    ...(noticedAt !== undefined && { noticedAt }),
  };
}

/** A pause or a partition that is over has cost its owner nothing any more; other peers than sessions take no run away. */
function isCause({ fault, startedAt, endedAt }: Strike, queuedAt: number): boolean {
  if (startedAt > queuedAt || (fault.kind === 'partition' && fault.peer !== 'session')) return false;
  return fault.kind === 'kill' || fault.kind === 'terminate' || queuedAt <= endedAt + AFTERMATH_MS;
}

function besideOf({ strike, queuedAt, claimedAt, firstWordAt }: Takeover, { strikes }: Facts): Strike[] {
  const [from, to] = [strike?.startedAt ?? queuedAt, firstWordAt ?? claimedAt];
  return strikes.filter((other) => other !== strike && isBeside(other, from, to));
}

function isBeside({ fault, startedAt, endedAt }: Strike, from: number, to: number): boolean {
  if (HARMLESS.has(fault.kind)) return false;
  if ('target' in fault && fault.target.startsWith('gateway')) return false;
  return startedAt <= to && endedAt + (fault.kind === 'skew' ? SKEW_AFTERMATH_MS : 0) >= from;
}

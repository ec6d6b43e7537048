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
  /** First commit of the new owner. */
  firstWordAt: number;
}

export interface Facts {
  strikes: readonly Strike[];
  /** When a session process noticed that this life of a runner is over. */
  noticedAt: ReadonlyMap<string, number>;
}

/** Faults that slow no takeover down. */
const HARMLESS = new Set<Fault['kind']>(['broker-wipe', 'sandbox-kill']);
/** A clock that was ahead has left times that others still have to pass. */
const SKEW_AFTERMATH_MS = 35_000;

interface Loss {
  runId: string;
  owner: string;
  queuedAt: number;
  claimedAt?: number;
}

/** Every change of hands in a log, from the loss of one owner to the first commit of the next one that says a word. */
export function takeoversOf(commits: readonly StoredCommit[], facts: Facts): Takeover[] {
  const found: Takeover[] = [];
  let loss: Loss | undefined;
  for (const [index, { head, ts0, commitIds }] of commits.entries()) {
    const before = commits[index - 1]?.head.run;
    const at = ts0 / 1_000;
    if (
      before?.state === 'running' &&
      before.owner !== null &&
      head.run?.id === before.id &&
      head.run.state === 'queued'
    )
      loss ??= { runId: before.id, owner: before.owner, queuedAt: at };
    if (!loss) continue;
    if (before?.state === 'queued' && head.run?.state === 'running') loss.claimedAt = at;
    const isWord = commitIds.some((id) => id.startsWith(`${loss?.runId}.`));
    if (head.run?.state === 'queued' || loss.claimedAt === undefined || !isWord) continue;
    found.push(describeTakeover(loss, loss.claimedAt, at, facts));
    loss = undefined;
  }
  return found;
}

function describeTakeover(loss: Loss, claimedAt: number, firstWordAt: number, facts: Facts): Takeover {
  const { runId, owner, queuedAt } = loss;
  const strike = facts.strikes.findLast(({ instance, startedAt }) => instance === owner && startedAt <= queuedAt);
  const from = strike?.startedAt ?? queuedAt;
  const beside = facts.strikes.filter((other) => other !== strike && isBeside(other, from, firstWordAt));
  const noticedAt = facts.noticedAt.get(owner);
  return {
    runId,
    beside,
    queuedAt,
    claimedAt,
    firstWordAt,
    ...(strike && { strike }),
    ...(noticedAt !== undefined && { noticedAt }),
  };
}

function isBeside({ fault, startedAt, endedAt }: Strike, from: number, to: number): boolean {
  if (HARMLESS.has(fault.kind)) return false;
  if ('target' in fault && fault.target.startsWith('gateway')) return false;
  return startedAt <= to && endedAt + (fault.kind === 'skew' ? SKEW_AFTERMATH_MS : 0) >= from;
}

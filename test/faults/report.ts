import { describe, type FaultKind } from './plan';
import type { RoundResult } from './round';
import type { Takeover } from './takeovers';
import { VIOLATION_KINDS, type ViolationKind } from './violation';

const SLOW_MS = 10_000;

const CAUSES: readonly [name: string, kind: FaultKind][] = [
  ['SIGKILL', 'kill'],
  ['SIGTERM', 'terminate'],
  ['SIGSTOP', 'stop'],
  ['partition', 'partition'],
];

const LABELS: Partial<Record<ViolationKind, string>> = {
  numbers: 'wrong numbers or times',
  chain: 'broken hashes',
  keyed: 'keyed effects not exactly once',
  unkeyed: 'unkeyed effects twice or otherwise than said',
  pairs: 'unpaired calls',
  terminal: 'wrong ends',
  fenced: 'fenced writes',
  queue: 'stale rows of the queue',
  problem: 'other problems',
};

/** What a round has shown, as lines for people. */
export function report(result: RoundResult): string[] {
  const { violations, takeovers, ...counts } = result;
  const broken = VIOLATION_KINDS.map(
    (kind) => [kind, violations.filter((found) => found.kind === kind).length] as const,
  );
  return [
    ...takeovers.filter((takeover) => toClaim(takeover) > SLOW_MS).map(slowLine),
    ...violations.map(({ kind, text }) => `violation (${kind}): ${text}`),
    `faults: ${Object.entries(counts.faultsByKind)
      .map(([kind, n]) => `${n} ${kind}`)
      .join(', ')}`,
    `runs ${counts.runs}, commits ${counts.commits}, events ${counts.events}, effects ${counts.effects}, ` +
      `connections ${counts.connections}, lost acknowledgements ${counts.lostAcknowledgements}`,
    `unknown ${counts.unknown}, parked ${counts.parked}, without their model ${counts.unreachable}, terminal events ${counts.terminalEvents}`,
    ...CAUSES.flatMap(([name, kind]) =>
      causeLines(
        name,
        takeovers.filter(({ strike }) => strike?.fault.kind === kind),
      ),
    ),
    `other takeovers: ${takeovers.filter(({ strike }) => !CAUSES.some(([, kind]) => kind === strike?.fault.kind)).length}`,
    `violations ${violations.length}: ${broken.map(([kind, n]) => `${LABELS[kind] ?? kind} ${n}`).join(', ')}`,
  ];
}

const startOf = ({ strike, queuedAt }: Takeover): number => strike?.startedAt ?? queuedAt;
/** From the strike, or from the loss where nothing struck the owner, to the claim by the next one. */
const toClaim = (takeover: Takeover): number => takeover.claimedAt - startOf(takeover);
const toWord = (takeover: Takeover): number[] =>
  takeover.firstWordAt === undefined ? [] : [takeover.firstWordAt - startOf(takeover)];

function causeLines(name: string, takeovers: readonly Takeover[]): string[] {
  const alone = takeovers.filter(({ beside }) => beside.length === 0);
  const line = (what: string, all: readonly Takeover[]): string =>
    `takeover after ${name}, ${what}: ${all.length}` +
    (all.length === 0
      ? ''
      : `; to the claim ${figures(all.map(toClaim))}; to the first word ${figures(all.flatMap(toWord))}`);
  return takeovers.length === 0 ? [line('all', [])] : [line('all', takeovers), line('no other fault beside', alone)];
}

function figures(values: readonly number[]): string {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number): string =>
    ((sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0) / 1_000).toFixed(2);
  return `p50 ${at(0.5)} s, p99 ${at(0.99)} s`;
}

/** Where the time went. */
function slowLine(takeover: Takeover): string {
  const { runId, strike, beside, noticedAt, queuedAt, claimedAt, firstWordAt } = takeover;
  const from = strike?.startedAt ?? queuedAt;
  const after = (at: number | undefined): string => (at === undefined ? '?' : `+${((at - from) / 1_000).toFixed(1)} s`);
  const others = beside.map(
    ({ fault, startedAt, endedAt }) => `${describe(fault)} (${after(startedAt)} to ${after(endedAt)})`,
  );
  return (
    `slow takeover of ${runId}, ${strike ? describe(strike.fault) : 'nothing struck its owner'}: noticed ${after(noticedAt)}, ` +
    `queued ${after(queuedAt)}, claimed ${after(claimedAt)}, first word ${after(firstWordAt)}` +
    (others.length === 0 ? '' : `; beside: ${others.join('; ')}`)
  );
}

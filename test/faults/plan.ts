import { Random } from '../sim/world/random';

export const RUNNERS = ['agent-runner', 'agent-runner-2'];
export const SESSIONS = ['session', 'session-2'];
export const GATEWAYS = ['gateway', 'gateway-2'];
export const TOOL_EXECUTOR = 'tool-executor';

export const PEERS = ['session', 'executor', 'model'] as const;
/** Whom a runner talks to. */
export type Peer = (typeof PEERS)[number];

/** One fault: after a pause it strikes, and is made good again after a while. */
export type Fault = { pauseMs: number; durationMs: number } & (
  | { kind: 'kill' | 'stop' | 'terminate'; target: string }
  /** All of it forgotten. */
  | { kind: 'broker-wipe' }
  | { kind: 'store-kill' | 'store-freeze' }
  /** Every seventh acknowledgement between a session process and the store. */
  | { kind: 'drop-acks'; target: string }
  /** Silent: nothing comes through. Otherwise connections are cut and refused. */
  | { kind: 'partition'; target: string; peer: Peer; silent: boolean }
  /** A life of a process whose wall clock is off. */
  | { kind: 'skew'; target: string; skewMs: number }
  /** One of the sandboxes that run at that moment. */
  | { kind: 'sandbox-kill' }
);

export type FaultKind = Fault['kind'];

/** A stopped runner beyond its lease is taken for lost; then it wakes up. */
const BEYOND_LEASE_MS = 18_000;
const FREEZE_MS = 20_000;
/** Within what a replica may be off, and far beyond. */
const SKEWS_MS = [1_500, -1_500, 30_000, -30_000];
/** No fault of a short round takes longer. */
const SHORT_MS = 4_000;

type Make = (random: Random) => { kind: FaultKind; durationMs: number } & Record<string, unknown>;
type Duration = (random: Random) => number;

const between =
  (low: number, high: number): Duration =>
  (random) =>
    Math.round(random.between(low, high));
const pause = between(200, 2_500);

const kill =
  (targets: string[]): Make =>
  (random) => ({ kind: 'kill', target: random.pick(targets), durationMs: between(0, 1_000)(random) });
const stop =
  (targets: string[], duration: Duration = between(100, 4_000)): Make =>
  (random) => ({ kind: 'stop', target: random.pick(targets), durationMs: duration(random) });
const terminate =
  (targets: string[]): Make =>
  (random) => ({ kind: 'terminate', target: random.pick(targets), durationMs: 0 });
const brokerWipe: Make = (random) => ({ kind: 'broker-wipe', durationMs: between(0, 3_000)(random) });
const storeKill: Make = (random) => ({ kind: 'store-kill', durationMs: between(0, 2_000)(random) });
const storeFreeze =
  (durationMs: number): Make =>
  () => ({ kind: 'store-freeze', durationMs });
const sandboxKill: Make = () => ({ kind: 'sandbox-kill', durationMs: 0 });

function dropAcks(random: Random): ReturnType<Make> {
  return { kind: 'drop-acks', target: random.pick(SESSIONS), durationMs: between(2_000, 8_000)(random) };
}

function partition(random: Random): ReturnType<Make> {
  const [target, peer, silent] = [random.pick(RUNNERS), random.pick(PEERS), random.chance(0.5)];
  return { kind: 'partition', target, peer, silent, durationMs: between(500, 13_000)(random) };
}

function skew(random: Random): ReturnType<Make> {
  const [target, skewMs] = [random.pick(SESSIONS), random.pick(SKEWS_MS)];
  return { kind: 'skew', target, skewMs, durationMs: between(4_000, 8_000)(random) };
}

/** Of a hundred faults about so many are of each kind. */
const KINDS: readonly [weight: number, make: Make][] = [
  [24, kill(RUNNERS)],
  [8, kill(SESSIONS)],
  [6, kill(GATEWAYS)],
  [5, kill([TOOL_EXECUTOR])],
  [5, stop(RUNNERS)],
  [2, stop(RUNNERS, () => BEYOND_LEASE_MS)],
  [4, stop(SESSIONS)],
  [3, stop(GATEWAYS)],
  [2, stop([TOOL_EXECUTOR])],
  [10, terminate(RUNNERS)],
  [4, terminate([...SESSIONS, ...GATEWAYS])],
  [5, brokerWipe],
  [3, storeKill],
  [2, storeFreeze(FREEZE_MS)],
  [4, dropAcks],
  [7, partition],
  [3, skew],
  [3, sandboxKill],
];
/** Kinds that are planned. */
export const FAULT_KINDS: readonly string[] = [...new Set(KINDS.map(([, make]) => make(new Random(1)).kind))];
const TOTAL = KINDS.reduce((sum, [weight]) => sum + weight, 0);

/** The same seed gives the same faults. `only` leaves out all other kinds. */
export function planFaults(seed: number, count: number, only: readonly string[] = FAULT_KINDS): Fault[] {
  const random = new Random(seed);
  return Array.from({ length: count }, () => {
    const pauseMs = pause(random);
    for (;;) {
      const drawn = pick(random)(random);
      if (only.includes(drawn.kind)) return { pauseMs, ...drawn } as Fault;
    }
  });
}

/** One fault of every kind, in an order and on targets that the seed decides; none takes long. */
export function planShort(seed: number): Fault[] {
  const random = new Random(seed);
  const makes: Make[] = [
    ...[RUNNERS, SESSIONS, GATEWAYS, [TOOL_EXECUTOR]].map((targets) => kill(targets)),
    stop([...RUNNERS, ...SESSIONS, ...GATEWAYS, TOOL_EXECUTOR], between(500, SHORT_MS)),
    terminate(RUNNERS),
    brokerWipe,
    storeKill,
    storeFreeze(SHORT_MS),
    dropAcks,
    partition,
    sandboxKill,
  ];
  const faults = makes.map((make) => ({ pauseMs: pause(random) / 2, ...make(random) }) as Fault);
  const drawn = faults.map((fault) => ({ fault, place: random.next() }));
  return drawn
    .toSorted((a, b) => a.place - b.place)
    .map(({ fault }) => ({ ...fault, durationMs: Math.min(fault.durationMs, SHORT_MS) }));
}

/** What must not be struck by a second fault before this one is over. */
export function targetsOf(fault: Fault): string[] {
  if ('target' in fault) return [fault.target];
  return [fault.kind.startsWith('store') ? 'store' : fault.kind];
}

export function describe(fault: Fault): string {
  const { kind, pauseMs, durationMs } = fault;
  const details = [
    kind,
    ...('target' in fault ? [fault.target] : []),
    ...('peer' in fault ? ['from', fault.peer, fault.silent ? 'silently' : 'by cutting'] : []),
    ...('skewMs' in fault ? [`by ${fault.skewMs} ms`] : []),
  ];
  return `after ${pauseMs} ms: ${details.join(' ')}${durationMs > 0 ? ` for ${durationMs} ms` : ''}`;
}

function pick(random: Random): Make {
  let left = random.between(0, TOTAL);
  for (const [weight, make] of KINDS) {
    left -= weight;
    if (left < 0) return make;
  }
  return partition;
}

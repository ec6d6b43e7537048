import { setTimeout as delay } from 'node:timers/promises';
import { Actor } from './actor';
import { check, type Findings, type Played } from './check';
import type { Outage } from './check-runs';
import type { FaultWorld } from './fault-world';
import { describe, RUNNERS, SESSIONS, targetsOf, type Fault } from './plan';
import { instanceOf, noticesOf } from './logs';
import { StoreReader } from './store-reader';
import { strike } from './strike';
import { takeoversOf, type Facts, type Strike, type Takeover } from './takeovers';
import { violation, type Violation } from './violation';

export interface RoundOptions {
  faults: readonly Fault[];
  actors: number;
  /** Faults that may be on at the same time. */
  parallel: number;
  /** After the last fault every run ends within this time. */
  settleMs: number;
  progress: (line: string) => void;
}

export interface RoundResult extends Findings {
  faultsByKind: Record<string, number>;
  connections: number;
  lostAcknowledgements: number;
  takeovers: Takeover[];
}

/** No fault takes so long, its repair included. */
const DRIVING_MAX_MS = 5_000;
const STRIKE_MAX_MS = 150_000;
/** What a failed effect owes is tried again within this time. */
const QUEUE_SETTLE_MS = 25_000;

/** Plays faults against real processes that serve a few users, then checks what is left. */
export async function playRound(world: FaultWorld, options: RoundOptions): Promise<RoundResult> {
  const actors = Array.from({ length: options.actors }, (_, index) => new Actor(world.margay, index));
  for (const actor of actors) await actor.open();
  let isOver = false;
  const deadline = new AbortController();
  const playing = actors.map((actor) =>
    actor
      .play(() => isOver, deadline.signal)
      .catch((error: unknown) => {
        if (!deadline.signal.aborted) return violation('problem', String(error));
        return undefined; // its run is found to be stuck
      }),
  );
  const { strikes, problems } = await strikeAll(world, options);
  isOver = true;
  world.heal();
  options.progress('all faults are over');
  const timer = setTimeout(() => deadline.abort(new Error('not settled')), options.settleMs);
  problems.push(...(await Promise.all(playing)).filter((problem) => problem !== undefined));
  clearTimeout(timer);
  return checkAll(world, actors, strikes, problems);
}

async function strikeAll(world: FaultWorld, { faults, parallel, progress }: RoundOptions) {
  const strikes: Strike[] = [];
  const problems: Violation[] = [];
  const active = new Map<Fault, Promise<void>>();
  const isFree = (fault: Fault): boolean => {
    const struck = new Set([...active.keys()].flatMap(targetsOf));
    return active.size < parallel && targetsOf(fault).every((target) => !struck.has(target));
  };
  for (const [index, fault] of faults.entries()) {
    await delay(fault.pauseMs);
    while (!isFree(fault)) await Promise.race(active.values());
    progress(`${index + 1}/${faults.length} ${describe(fault)}`);
    const done = strikeOne(world, fault, strikes)
      .catch((error: unknown) => void problems.push(violation('problem', `${describe(fault)}: ${String(error)}`)))
      .finally(() => active.delete(fault));
    active.set(fault, done);
  }
  await Promise.all(active.values());
  return { strikes, problems };
}

async function strikeOne(world: FaultWorld, fault: Fault, strikes: Strike[]): Promise<void> {
  const instance =
    'target' in fault && RUNNERS.includes(fault.target) ? await instanceOf(world, fault.target) : undefined;
  if (instance && fault.kind === 'kill') await untilDriving(world, instance);
  const struck: Strike = { fault, startedAt: Date.now(), endedAt: Infinity, ...(instance && { instance }) };
  strikes.push(struck);
  const late = new AbortController();
  const limit = delay(STRIKE_MAX_MS, undefined, { signal: late.signal }).then(() => {
    throw new Error(`not made good within ${STRIKE_MAX_MS} ms`);
  });
  try {
    await Promise.race([strike(world, fault), limit]);
  } finally {
    struck.endedAt = Date.now();
    limit.catch(() => undefined); // it was in time
    late.abort();
  }
}

/** The death of a runner without a run shows nothing: it gets a moment to have one, unless the store is struck, too. */
async function untilDriving({ servers, margay }: FaultWorld, instance: string): Promise<void> {
  const reader = new StoreReader(servers.store.url, margay.database);
  try {
    const endMs = performance.now() + DRIVING_MAX_MS;
    while (performance.now() < endMs && (await reader.isDriving(instance, DRIVING_MAX_MS)) === false) await delay(50);
  } finally {
    await reader.close();
  }
}

async function checkAll(
  world: FaultWorld,
  actors: readonly Actor[],
  strikes: readonly Strike[],
  problems: readonly Violation[],
): Promise<RoundResult> {
  const { margay } = world;
  const reader = new StoreReader(world.servers.store.url, margay.database);
  try {
    const facts: Facts = { strikes, noticedAt: await noticesOf(world) };
    const queue = await checkQueue(reader, actors);
    const outages = outagesIn(strikes);
    const all = await Promise.all(
      actors.map(async (actor) => {
        const commits = await reader.commitsOf(actor.sessionId);
        const played = { ...playedBy(actor), outages };
        const findings = await check(played, commits, await margay.storedFrames(actor.sessionId));
        return { findings, takeovers: takeoversOf(commits, facts) };
      }),
    );
    const sum = (key: keyof Omit<Findings, 'violations'>): number =>
      all.reduce((total, { findings }) => total + findings[key], 0);
    return {
      violations: [...problems, ...queue, ...all.flatMap(({ findings }) => findings.violations)],
      runs: sum('runs'),
      commits: sum('commits'),
      events: sum('events'),
      terminalEvents: sum('terminalEvents'),
      effects: sum('effects'),
      unknown: sum('unknown'),
      parked: sum('parked'),
      unreachable: sum('unreachable'),
      faultsByKind: countKinds(strikes),
      connections: actors.reduce((total, { connections }) => total + connections.length, 0),
      lostAcknowledgements: SESSIONS.reduce((total, name) => total + world.storeWay(name).dropped, 0),
      takeovers: all.flatMap(({ takeovers }) => takeovers),
    };
  } finally {
    await reader.close();
  }
}

/** All runs have ended: no row may say otherwise once the janitor has been there. */
async function checkQueue(reader: StoreReader, actors: readonly Actor[]): Promise<Violation[]> {
  const sessionIds = actors.map(({ sessionId }) => sessionId);
  const untilMs = Date.now() + QUEUE_SETTLE_MS;
  for (;;) {
    const rows = await reader.openRows(sessionIds);
    if (rows.length === 0) return [];
    if (Date.now() > untilMs)
      return rows.map(({ _id, state }) => violation('queue', `${_id} is ${state} in the queue`));
    await delay(500);
  }
}

const playedBy = ({ sessionId, folder, runs, recording, connections }: Actor): Played => ({
  sessionId,
  folder,
  runs,
  recording,
  connections,
});

function outagesIn(strikes: readonly Strike[]): Outage[] {
  const partitions = strikes.filter(({ fault }) => fault.kind === 'partition' && fault.peer === 'model');
  return partitions.map(({ startedAt, endedAt }) => ({ from: startedAt, to: endedAt }));
}

function countKinds(strikes: readonly Strike[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { fault } of strikes) counts[fault.kind] = (counts[fault.kind] ?? 0) + 1;
  return counts;
}

import type { LeaseRepository, Logger } from '@margay/platform';
import { FairQueue, Load, type TenantLimit } from './fairness';
import type { RunRepository, RunRow } from './run.repository';
import { TenantGate } from './tenant-gate';
import type { TenantLimits } from './tenant-limits';

const CANDIDATES = 200;
/** A tenant so far below its cap, its queued runs counted, reaches it in no single look. */
const ROOM = 10;
/** Positions are told up to here by the order in which runs will start. */
export const ORDERED_MAX = 1_000;

export interface RunQueuePorts {
  runs: Pick<RunRepository, 'queued' | 'running'>;
  limits: TenantLimits;
  leases: Pick<LeaseRepository, 'hold' | 'release'>;
  logger: Logger;
}

export interface LookFacts {
  /** Runs that were just queued here: their rows may not be written yet. */
  fresh: readonly RunRow[];
  /** Claims under way here: their rows may say `queued`, or nothing, for a moment longer. */
  underWay: readonly RunRow[];
  /** Whether a queued run may be given away now. */
  isOffered: (row: RunRow) => boolean;
}

type LimitOf = (tenantId: string) => TenantLimit;

interface Counted {
  load: Load;
  limitOf: LimitOf;
  /** Tenants near their cap for which this replica alone counts. */
  entered: Set<string>;
}

/** What one look at the queue shows. */
export interface QueueLook {
  /** The run to start next; undefined where none may. */
  next(): RunRow | undefined;
  /** Whether runs of this tenant are counted by this replica alone until `leave`: their claims must be seen by then. */
  isGated(tenantId: string): boolean;
  /** Runs are left that could start if there were a slot. */
  hasBacklog(): boolean;
  /** Tenants whose runs wait because they are at their cap, or because another replica is counting. */
  cappedTenants(): string[];
  /** Another replica is counting for some tenant: look again soon. */
  readonly isPartial: boolean;
  /** Lets others count. */
  leave(): Promise<void>;
}

/** The queue of runs as the store has it, in the order that fairness gives it. */
export class RunQueue {
  private readonly gate: TenantGate;

  constructor(private readonly ports: RunQueuePorts) {
    this.gate = new TenantGate(ports.leases, (error) =>
      ports.logger.debug({ err: error }, 'the lease of a count runs out by itself'),
    );
  }

  /** @returns undefined where nothing may start */
  async look(pool: string, { fresh, underWay, isOffered }: LookFacts): Promise<QueueLook | undefined> {
    const stored = await this.ports.runs.queued(pool, CANDIDATES);
    const known = new Set(stored.map(({ _id }) => _id));
    const rows = [...stored, ...fresh.filter(({ _id }) => !known.has(_id))].filter(isOffered);
    if (rows.length === 0) return undefined;
    const limitOf = await this.ports.limits.of(rows.map(({ tenantId }) => tenantId));
    const load = await this.load(underWay);
    const near = nearCap(rows, load, limitOf);
    if (near.length === 0) return this.lookOf(rows, near, { load, limitOf, entered: new Set() });
    const entered = await this.gate.enter(near);
    try {
      // What was counted before the gates were closed may be more by now.
      return this.lookOf(rows, near, { load: await this.load(underWay), limitOf, entered });
    } catch (error) {
      await this.gate.leave(entered);
      throw error;
    }
  }

  /** Queued runs of a pool in the order in which they will start if nothing ends or comes. */
  async order(pool: string): Promise<RunRow[]> {
    const rows = (await this.ports.runs.queued(pool, ORDERED_MAX)).slice(0, ORDERED_MAX);
    if (rows.length === 0) return [];
    const limitOf = await this.ports.limits.of(rows.map(({ tenantId }) => tenantId));
    const load = await this.load([]);
    // Runs that a cap holds back stand where they would without it.
    const queue = new FairQueue(rows, load, (tenantId) => ({ ...limitOf(tenantId), maxRunning: Infinity }));
    return rows.map(() => queue.next()).filter((row) => row !== undefined);
  }

  private async load(underWay: readonly RunRow[]): Promise<Load> {
    const load = new Load(await this.ports.runs.running());
    for (const { tenantId, principal } of underWay) load.add(tenantId, principal);
    return load;
  }

  private lookOf(rows: readonly RunRow[], near: readonly string[], { load, limitOf, entered }: Counted): QueueLook {
    const barred = near.filter((tenantId) => !entered.has(tenantId));
    const open = rows.filter(({ tenantId }) => !barred.includes(tenantId));
    const queue = new FairQueue(open, load, limitOf);
    return {
      next: () => queue.next(),
      isGated: (tenantId) => entered.has(tenantId),
      hasBacklog: () => queue.left.some(({ isBelowCap }) => isBelowCap),
      cappedTenants: () => [
        ...barred,
        ...queue.left.filter(({ isBelowCap }) => !isBelowCap).map(({ tenantId }) => tenantId),
      ],
      isPartial: barred.some((tenantId) => !this.gate.isInside(tenantId)),
      leave: () => this.gate.leave(entered),
    };
  }
}

/** Tenants that could reach their cap in this look and in that of another replica at the same time. */
function nearCap(rows: readonly RunRow[], load: Load, limitOf: LimitOf): string[] {
  const queued = new Map<string, number>();
  for (const { tenantId } of rows) queued.set(tenantId, (queued.get(tenantId) ?? 0) + 1);
  const isNear = ([tenantId, count]: [string, number]): boolean => {
    const { maxRunning } = limitOf(tenantId);
    const runs = load.ofTenant(tenantId);
    // At its cap nothing starts, whoever counts.
    return runs < maxRunning && (count >= CANDIDATES ? maxRunning < Infinity : runs + count + ROOM > maxRunning);
  };
  return [...queued].filter(isNear).map(([tenantId]) => tenantId);
}

import type { Greeting, PoolRequest, PoolState, SandboxEndpoint } from '../driver/sandbox-driver';
import type { Endings } from './endings';
import { statusOf } from './pod-status';
import { podNameOf, randomId, type Pods } from './pods';
import type { SandboxContext } from './sandbox-context';
import { endpointOf } from './sandbox-ref';
import type { SandboxRow } from './sandbox-row';

/** Asks a sandbox that serves nobody whether it answers. */
export type Probe = (endpoint: SandboxEndpoint) => Promise<Greeting>;

const STARTS_AT_ONCE = 10;
const START_MS = 120_000;
const MAX_AGE_MS = 3_600_000;
const PING_MS = 30_000;
const FAILURES = 3;
const PAUSE_FIRST_MS = 30_000;
const PAUSE_MAX_MS = 600_000;
/** Replaced at once: a quarter of the pool. */
const QUARTER = 4;

interface Health {
  failures: number;
  pauseMs: number;
  untilMs: number;
}

/** Sandboxes that wait for a session (cluster §1.9). One pass does a bounded piece of work. */
export class WarmPool {
  private readonly pings = new Map<string, number>();
  private readonly health = new Map<string, Health>();

  constructor(
    private readonly context: SandboxContext,
    private readonly parts: { pods: Pods; endings: Endings; probe: Probe },
  ) {}

  async ensure(request: PoolRequest): Promise<PoolState> {
    const pool = this.poolOf(request);
    const rows = await Promise.all(
      (await this.context.sandboxes.listPool(pool)).map((row) => this.lookAfter(row).catch(this.failed(row))),
    );
    const alive = rows.filter((row) => row !== undefined);
    const isCurrent = (row: SandboxRow) => row.specHash === request.specHash && ageOf(row.createdAt) < MAX_AGE_MS;
    const current = alive.filter(isCurrent);
    const outdated = alive.filter((row) => !isCurrent(row));
    const warming = current.filter(({ state }) => state === 'warming').length;
    await this.retire(request, current, outdated);
    await this.start(request, { current: current.length, warming, isReplacing: outdated.length > 0 });
    const failing = this.health.get(pool)?.failures ?? 0;
    return { warm: alive.filter(({ state }) => state === 'warm').length, warming, failing };
  }

  /** @returns undefined if it is none of the pool's any more */
  private async lookAfter(row: SandboxRow): Promise<SandboxRow | undefined> {
    const made = row.state === 'warming' ? await this.parts.pods.ensure(row) : row;
    if (!made) return undefined;
    const seen = this.context.pods.get(made);
    const status = seen?.metadata?.uid === made.podUid && seen ? statusOf(seen) : undefined;
    if (status?.kind === 'leaving' || status?.kind === 'broken') return this.giveUp(made, status.message);
    if (made.state === 'warm') return status ? this.ping(made) : this.whereGone(made);
    if (status?.kind === 'running') {
      const warm = await this.greet(made, status.ip, status.node);
      if (warm) return warm;
    }
    return ageOf(made.startedAt ?? made.createdAt) > START_MS ? this.giveUp(made, 'not ready in time') : made;
  }

  private async greet(row: SandboxRow, ip: string, node = ''): Promise<SandboxRow | undefined> {
    const greeting = await this.parts.probe(endpointOf({ ...row, ip })).catch(() => undefined); // it may not listen yet
    if (!greeting) return undefined;
    const { tlsFingerprint, tlsCertificate } = greeting;
    const found = { ip, node, tlsFingerprint, tlsCertificate, readyAt: new Date() };
    const warm = await this.context.sandboxes.change(row, { state: 'warm', ...found });
    this.health.delete(row.pool);
    this.pings.set(row._id, performance.now());
    return typeof warm === 'string' ? undefined : warm;
  }

  private async ping(row: SandboxRow): Promise<SandboxRow | undefined> {
    if (performance.now() - (this.pings.get(row._id) ?? 0) < PING_MS) return row;
    this.pings.set(row._id, performance.now());
    const isAnswering = await this.parts.probe(endpointOf(row)).then(
      () => true,
      () => false, // whatever the reason, a session would meet it, too
    );
    return isAnswering ? row : this.giveUp(row, 'does not answer');
  }

  private async whereGone(row: SandboxRow): Promise<SandboxRow | undefined> {
    if (await this.parts.pods.find(row)) return row;
    return this.giveUp(row, 'pod_gone');
  }

  private async giveUp(row: SandboxRow, reason: string): Promise<undefined> {
    this.pings.delete(row._id);
    if (row.state === 'warming') this.countFailure(row.pool, reason);
    await this.parts.endings.end(row, 'failed', reason);
  }

  private countFailure(pool: string, reason: string): void {
    const known = this.health.get(pool) ?? { failures: 0, pauseMs: PAUSE_FIRST_MS, untilMs: 0 };
    const failures = known.failures + 1;
    if (failures < FAILURES) return void this.health.set(pool, { ...known, failures });
    this.context.logger.error({ pool, reason, failures }, 'waiting sandboxes do not start');
    const untilMs = performance.now() + known.pauseMs;
    this.health.set(pool, { failures, pauseMs: Math.min(known.pauseMs * 2, PAUSE_MAX_MS), untilMs });
  }

  /** Too many, and those made from other settings once others can take their place. */
  private async retire({ target }: PoolRequest, current: SandboxRow[], outdated: SandboxRow[]): Promise<void> {
    const isWarm = ({ state }: SandboxRow) => state === 'warm';
    const tooMany = current.filter(isWarm).slice(0, Math.max(0, current.length - target));
    const spare = current.filter(isWarm).length + outdated.length - target;
    const replaceable = outdated.slice(0, Math.max(0, Math.min(spare, quarterOf(target))));
    for (const row of [...tooMany, ...replaceable]) await this.parts.endings.end(row, 'released', 'pool');
  }

  private async start(
    request: PoolRequest,
    now: { current: number; warming: number; isReplacing: boolean },
  ): Promise<void> {
    const { target } = request;
    if (performance.now() < (this.health.get(this.poolOf(request))?.untilMs ?? 0)) return;
    const limit = now.isReplacing ? Math.min(STARTS_AT_ONCE, quarterOf(target)) : STARTS_AT_ONCE;
    const missing = Math.min(target - now.current, limit - now.warming);
    for (let left = missing; left > 0; left -= 1) await this.startOne(request);
  }

  private async startOne(request: PoolRequest): Promise<void> {
    const { sandboxes } = this.context;
    const _id = randomId();
    const row = await sandboxes.insert({
      _id,
      tenantId: 'system',
      claimKey: `pool/${_id}`,
      class: request.class,
      pool: this.poolOf(request),
      state: 'warming',
      namespace: request.namespace,
      podName: podNameOf(_id),
      specHash: request.specHash,
      grantKid: this.context.settings.grantKid,
      attempt: 1,
      tries: 1,
    });
    if (row) await this.parts.pods.ensure(row).catch(this.failed(row));
  }

  private poolOf({ class: name, namespace }: PoolRequest): string {
    return this.context.settings.poolOf(name, namespace);
  }

  private failed(row: SandboxRow): (error: unknown) => Promise<undefined> {
    return async (error) => {
      this.context.logger.warn({ sandboxId: row._id, err: error }, 'a waiting sandbox could not be looked after');
      await this.giveUp(row, error instanceof Error ? error.message : String(error));
    };
  }
}

const quarterOf = (target: number): number => Math.max(1, Math.ceil(target / QUARTER));

function ageOf(date: Date): number {
  return Date.now() - date.getTime();
}

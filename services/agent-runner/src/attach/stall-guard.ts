import type { runnersPb } from '@margay/contracts';
import { UnavailableError } from '@margay/errors';
import type { AttachHost } from './attach-client';

/** Nothing that was assigned has opened its journal for so long: no more runs come here … */
const UNREADY_MS = 10_000;
/** … what has not opened goes to another runner … */
const LEAVES_MS = 20_000;
/** … and a process that can't even let go of it is of no use any more. */
const DEAD_MS = 30_000;

type Life = Pick<runnersPb.HeldRun, 'runId' | 'epoch'>;

interface Assigned {
  run: runnersPb.HeldRun;
  sinceMs: number;
}

/**
 * Sees a runner that takes runs and does nothing with them, although its heartbeats go on. A run that does not open its
 * journal is no longer listed, so the session service gives it to somebody else. One session that can't be read makes
 * nobody unwell: only where no run here is open, readiness fails first and liveness next.
 */
export class StallGuard implements AttachHost {
  /** Runs that have not opened their journal yet, oldest first. */
  private readonly unopened = new Map<string, Assigned>();

  constructor(
    private readonly host: AttachHost,
    private readonly nowMs: () => number = () => performance.now(),
  ) {}

  /** The journal of this run was opened, or it was said why not. */
  settled(run: Life): void {
    this.unopened.delete(lifeOf(run));
  }

  freeSlots(): number {
    return this.stalledMs() >= UNREADY_MS ? 0 : this.host.freeSlots();
  }

  heldRuns(): runnersPb.HeldRun[] {
    const late = this.present().filter(({ sinceMs }) => this.nowMs() - sinceMs >= LEAVES_MS);
    if (late.length === 0) return this.host.heldRuns();
    for (const { run } of late) this.host.onRevoke({ ...run, reason: 'its journal was not opened' });
    const leaving = new Set(late.map(({ run }) => lifeOf(run)));
    return this.host.heldRuns().filter((run) => !leaving.has(lifeOf(run)));
  }

  lostRuns(): runnersPb.RunDied[] {
    return this.host.lostRuns();
  }

  onAssign(assign: runnersPb.Assign): void {
    const { sessionId, runId, epoch, isolated } = assign;
    const run = { sessionId, runId, epoch };
    // A run in a process of its own is watched by whoever started that.
    if (!isolated) this.unopened.set(lifeOf(run), { run, sinceMs: this.nowMs() });
    this.host.onAssign(assign);
  }

  onRevoke(revoke: runnersPb.Revoke): void {
    this.host.onRevoke(revoke);
  }

  onGrant(grant: runnersPb.RenewedGrant): void {
    this.host.onGrant(grant);
  }

  onSilence(): void {
    this.host.onSilence();
  }

  /** @throws UnavailableError `runs_stalled` */
  checkReady(): void {
    this.check(UNREADY_MS);
  }

  /** @throws UnavailableError `runs_stalled` */
  checkLive(): void {
    this.check(DEAD_MS);
  }

  private check(limitMs: number): void {
    const stalledMs = this.stalledMs();
    if (stalledMs < limitMs) return;
    throw new UnavailableError(
      'runs_stalled',
      `no run here has opened its journal for ${Math.round(stalledMs)} ms; the runner is stuck`,
    );
  }

  /** For how long runs have been waiting here for their journals while none is open; 0 otherwise. */
  private stalledMs(): number {
    const [oldest] = this.present();
    if (!oldest) return 0;
    const isOneOpen = this.host.heldRuns().some((run) => !this.unopened.has(lifeOf(run)));
    return isOneOpen ? 0 : this.nowMs() - oldest.sinceMs;
  }

  /** Those of them that are still here. */
  private present(): Assigned[] {
    if (this.unopened.size === 0) return [];
    const held = new Set(this.host.heldRuns().map(lifeOf));
    for (const life of this.unopened.keys()) if (!held.has(life)) this.unopened.delete(life);
    return [...this.unopened.values()];
  }
}

function lifeOf({ runId, epoch }: Life): string {
  return `${runId} ${epoch}`;
}

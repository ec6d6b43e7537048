import type { Head } from '@margay/log';
import { faultPoint, type Logger } from '@margay/platform';
import { LRUCache } from 'lru-cache';
import type { SessionLog } from '../commits/session-log';
import type { AttachedRunner } from './attached-runner';
import type { RunGrants } from './run-grants';
import { rowOfRun, type RunRepository, type RunRow } from './run.repository';

const REMEMBERED_MAX = 20_000;

export interface RunClaimsPorts {
  log: SessionLog;
  runs: Pick<RunRepository, 'project'>;
  grants: RunGrants;
  logger: Logger;
  /** Takes back a run that was claimed for a runner which is gone. */
  giveBack: (row: RunRow) => Promise<void>;
  /** Resolves once what a commit of this replica owes to the queue was tried. */
  applied: (sessionId: string, c: number) => Promise<void>;
  /** @param queuedMs how long it was queued, as far as this replica knows */
  onAssigned: (row: RunRow, queuedMs: number | undefined) => void;
}

/** Claims queued runs for runners, and tells the runners. */
export class RunClaims {
  /** (run, epoch) pairs claimed here: their queue rows may say `queued` for a moment longer. */
  private readonly claimed = new LRUCache<string, true>({ max: REMEMBERED_MAX });
  /** When runs were seen to be queued, on the monotonic clock. */
  private readonly queuedAtMs = new LRUCache<string, number>({ max: REMEMBERED_MAX });
  /** Claims whose rows may not show them yet. */
  private readonly underWay = new Map<string, RunRow>();

  constructor(
    private readonly ports: RunClaimsPorts,
    private readonly isAttached: (runner: AttachedRunner) => boolean,
  ) {}

  /** Runs that count as running although the store may not say so yet. */
  get pending(): RunRow[] {
    return [...this.underWay.values()];
  }

  /** Whether this life of a run was claimed here. */
  has(row: RunRow): boolean {
    return this.claimed.has(lifeOf(row));
  }

  /** A run is queued; it waits from the first time on that this is seen. */
  sawQueued(runId: string): void {
    if (!this.queuedAtMs.has(runId)) this.queuedAtMs.set(runId, performance.now());
  }

  /**
   * Beside the look at the queue: one session whose insert takes long holds up no other.
   * @returns resolves once the count of running runs shows the outcome; never rejects
   */
  async claim(runner: AttachedRunner, row: RunRow): Promise<void> {
    const life = lifeOf(row);
    if (this.claimed.has(life)) return;
    this.claimed.set(life, true);
    this.underWay.set(life, row);
    runner.reserve();
    try {
      const c = await this.commitClaim(runner, row).finally(() => runner.giveBack());
      if (c !== undefined) await this.ports.applied(row.sessionId, c);
    } catch (error) {
      this.claimed.delete(life);
      const { sessionId, _id: runId } = row;
      this.ports.logger.warn({ err: error, sessionId, runId }, 'a queued run could not be claimed');
    } finally {
      this.underWay.delete(life);
    }
  }

  /** @returns number of the commit, if the claim was stored */
  private async commitClaim(runner: AttachedRunner, row: RunRow): Promise<number | undefined> {
    const { _id: runId, sessionId, epoch } = row;
    const commitId = `claim.${runId}.${epoch}.${runner.instance}`;
    const claim = { kind: 'claim' as const, commitId, runId, epoch, owner: runner.instance };
    const outcome = await this.ports.log.submit(sessionId, claim);
    if (outcome.ok) {
      await this.assign(runner, outcome.head, outcome.c, row);
      return outcome.c;
    }
    // A refused claim shows that the row is stale: it is written again from the head on which the claim was refused.
    await this.ports.runs.project(rowOfRun(outcome.head, runId, epoch));
    return undefined;
  }

  private async assign(runner: AttachedRunner, head: Head, claimC: number, row: RunRow): Promise<void> {
    const { run } = head;
    const epoch = row.epoch + 1;
    // Cancelled within the same commit.
    if (run?.id !== row._id || head.epoch !== epoch) return;
    const { sessionId } = head;
    await faultPoint('session.before-assign', () => `${sessionId} ${run.id} ${runner.instance}`);
    const grant = await this.ports.grants.sign(head, run, epoch);
    // The runner left while the claim was being stored: nobody would learn of the assignment.
    if (!this.isAttached(runner)) return this.ports.giveBack({ ...row, epoch });
    this.ports.logger.info({ sessionId, runId: run.id, epoch, runner: runner.instance }, 'a run was assigned');
    runner.assign({
      sessionId,
      runId: run.id,
      epoch,
      claimC,
      grant,
      traceparent: run.traceparent ?? '',
      isolated: run.isolated === true,
    });
    const queuedAtMs = this.queuedAtMs.get(row._id);
    this.queuedAtMs.delete(row._id);
    this.ports.onAssigned(row, queuedAtMs === undefined ? undefined : performance.now() - queuedAtMs);
  }
}

/** One life of a run: it is claimed at most once. */
export function lifeOf({ _id, epoch }: RunRow): string {
  return `${_id} ${epoch}`;
}

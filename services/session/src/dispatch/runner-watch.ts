import type { Logger } from '@margay/platform';
import { LRUCache } from 'lru-cache';
import type { SessionLog } from '../commits/session-log';
import type { HeldRun } from './attached-runner';
import { runRowOf, type RunRepository, type RunRow } from './run.repository';
import type { RunnerRepository } from './runner.repository';

const POLL_MS = 5_000;
/** A row older than this that its runner does not list in two successive beats is taken over. */
const UNLISTED_AFTER_MS = 5_000;

/** Runs taken over of which it is remembered since when their owner was missed. */
const TAKEN_OVER_MAX = 10_000;

interface Observed {
  beat: number;
  changedAtMs: number;
}

export interface RunnerWatchOptions {
  log: SessionLog;
  runs: RunRepository;
  runners: RunnerRepository;
  logger: Logger;
  lostAfterMs: number;
  pool: string;
  onTakeover: (cause: string) => void;
}

/**
 * Takes runs back from lost runners. Liveness is a hint: a beat that has not moved for 15 s of this observer's own clock;
 * safety rests on the epoch that a takeover raises.
 */
export class RunnerWatch {
  private readonly observed = new Map<string, Observed>();
  private readonly takenOver = new LRUCache<string, number>({ max: TAKEN_OVER_MAX });
  private timer?: NodeJS.Timeout;
  private isRunning = false;
  private lastPollMs = 0;

  constructor(private readonly options: RunnerWatchOptions) {}

  start(): void {
    this.timer = setInterval(() => void this.tick(), POLL_MS);
    this.timer.unref();
  }

  stop(): void {
    clearInterval(this.timer);
  }

  /**
   * All running runs of a runner that is gone for good go back to the queue.
   * @param held runs known to be there whose rows may not be written yet
   * @param sinceMs monotonic time of the first sign that it is gone
   */
  async takeOverAll(
    instance: string,
    cause: string,
    held: readonly HeldRun[] = [],
    sinceMs = performance.now(),
  ): Promise<void> {
    this.observed.delete(instance);
    const rows = await this.options.runs.runningOf(instance);
    const known = new Set(rows.map(({ _id }) => _id));
    const unwritten = held.filter(({ runId }) => !known.has(runId)).map((run) => this.rowOf(run, instance));
    const all = [...rows, ...(await Promise.all(unwritten)).filter((row) => row !== undefined)];
    await Promise.all(all.map((row) => this.takeOver(row, cause, sinceMs)));
    await this.options.runners.remove(instance);
  }

  /** The row of a run as the log shows it; undefined where this runner does not drive it any more. */
  private async rowOf({ sessionId, runId }: HeldRun, instance: string): Promise<RunRow | undefined> {
    const row = runRowOf(await this.options.log.recentHead(sessionId));
    return row?._id === runId && row.owner === instance && row.state === 'running' ? row : undefined;
  }

  /** When the owner was missed from which this run was taken over, if it was and has not been asked for since. */
  takenOverSince(runId: string): number | undefined {
    const sinceMs = this.takenOver.get(runId);
    this.takenOver.delete(runId);
    return sinceMs;
  }

  async takeOver(row: RunRow, cause: string, sinceMs = performance.now()): Promise<void> {
    const { log, runs, logger, onTakeover } = this.options;
    const commitId = `takeover.${row._id}.${row.epoch}`;
    // Before it is stored: the next owner may be found at once.
    this.takenOver.set(row._id, sinceMs);
    const outcome = await log.submit(row.sessionId, {
      kind: 'takeover',
      commitId,
      runId: row._id,
      epoch: row.epoch,
      cause,
    });
    if (outcome.ok) {
      onTakeover(cause);
      logger.info({ sessionId: row.sessionId, runId: row._id, cause }, 'the run was taken back from its runner');
      return;
    }
    this.takenOver.delete(row._id);
    const present = runRowOf(outcome.head);
    if (present?._id === row._id) await runs.project(present);
    else await runs.project({ ...row, c: outcome.head.c, state: 'done', owner: null });
  }

  /**
   * Compares what a runner lists with what the store says it owns.
   * @param missedBefore runs that its previous beat did not list either
   * @returns runs of the store that this beat does not list
   */
  async compare(instance: string, listed: HeldRun[], missedBefore: ReadonlySet<string>): Promise<Set<string>> {
    const rows = await this.options.runs.runningOf(instance);
    const isListed = new Set(listed.map(({ runId, epoch }) => `${runId} ${epoch}`));
    const missing = rows.filter((row) => !isListed.has(`${row._id} ${row.epoch}`));
    const ripe = missing.filter((row) => missedBefore.has(row._id) && Date.now() - row.queuedAtMs > UNLISTED_AFTER_MS);
    await Promise.all(ripe.map((row) => this.takeOver(row, 'unlisted')));
    return new Set(missing.map(({ _id }) => _id));
  }

  private async tick(): Promise<void> {
    if (this.isRunning) return;
    this.isRunning = true;
    try {
      await this.poll();
    } catch (error) {
      // An outage of the store counts for nobody: the observer starts afresh.
      this.observed.clear();
      this.options.logger.warn({ err: error }, 'the runners could not be observed');
    } finally {
      this.isRunning = false;
    }
  }

  private async poll(): Promise<void> {
    const nowMs = performance.now();
    if (nowMs - this.lastPollMs > 2 * POLL_MS) this.observed.clear();
    this.lastPollMs = nowMs;
    const rows = await this.options.runners.listAll();
    const known = new Set(rows.map(({ _id }) => _id));
    for (const row of rows) {
      const before = this.observed.get(row._id);
      if (before?.beat !== row.beat) this.observed.set(row._id, { beat: row.beat, changedAtMs: nowMs });
      else if (row.isLost || nowMs - before.changedAtMs > this.options.lostAfterMs)
        await this.takeOverAll(row._id, 'lease', [], before.changedAtMs);
    }
    await this.takeOverOrphans(known, nowMs);
  }

  /** Owners of running runs of which there is no row at all. */
  private async takeOverOrphans(known: ReadonlySet<string>, nowMs: number): Promise<void> {
    for (const owner of await this.options.runs.owners(this.options.pool)) {
      if (known.has(owner)) continue;
      const before = this.observed.get(owner);
      if (!before) this.observed.set(owner, { beat: -1, changedAtMs: nowMs });
      else if (nowMs - before.changedAtMs > this.options.lostAfterMs)
        await this.takeOverAll(owner, 'lease', [], before.changedAtMs);
    }
  }
}

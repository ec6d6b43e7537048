import type { LeaveCause } from '@margay/log';
import type { Logger } from '@margay/platform';
import { LRUCache } from 'lru-cache';
import type { SessionLog } from '../commits/session-log';
import type { HeldRun } from './attached-runner';
import { rowOfRun, runRowOf, type RunRepository, type RunRow } from './run.repository';
import type { ReplicaRepository } from './replica.repository';
import type { RunnerRepository, RunnerRow } from './runner.repository';

const POLL_MS = 1_000;
/** Polls further apart than this saw an outage or a pause of this process: the observer starts afresh. */
const PAUSE_MS = 5_000;
/** Owners without a row are rare; they are looked for every so many polls. */
const ORPHANS_EVERY = 3;
/**
 * A runner that no living replica holds has had no answer for so long since this observer began to look: by then it has
 * stopped its runs by itself. Replicas that were killed saw no stream close; without this their runners, killed in the
 * same moment, would be waited for as long as any other.
 */
const UNATTACHED_MS = 10_000;
/** A replica whose beat has not moved for so long holds no runner any more. */
const REPLICA_SILENT_MS = 5_000;
/** … and for so long is forgotten. */
const REPLICA_GONE_MS = 60_000;
/** Whoever marked a runner as lost takes its runs over at once; the others wait so long. */
const MARKED_AFTER_MS = 3_000;
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
  replicas: ReplicaRepository;
  logger: Logger;
  lostAfterMs: number;
  /** A row that shows a run as running for longer than this, and that two successive beats do not list, is taken over. */
  unlistedAfterMs: number;
  onTakeover: (cause: LeaveCause) => void;
}

/**
 * Takes runs back from lost runners. Liveness is a hint: a beat that has not moved for 15 s of this observer's own clock,
 * or 10 s where no living replica holds the runner; safety rests on the epoch that a takeover raises.
 */
export class RunnerWatch {
  private readonly observed = new Map<string, Observed>();
  /** Session replicas by instance. */
  private readonly replicas = new Map<string, Observed>();
  private readonly takenOver = new LRUCache<string, number>({ max: TAKEN_OVER_MAX });
  private readonly takingOver = new Set<string>();
  private timer?: NodeJS.Timeout;
  private isRunning = false;
  private lastPollMs = 0;
  private polls = 0;
  /** Owners of running runs that had no row when they were looked for last. */
  private orphans: string[] = [];

  constructor(private readonly options: RunnerWatchOptions) {}

  start(): void {
    this.timer = setInterval(() => void this.tick(), POLL_MS);
    this.timer.unref();
    // Silence counts from the first look on.
    void this.tick();
  }

  stop(): void {
    clearInterval(this.timer);
  }

  /** Tells other replicas that no runner is held here any more. */
  async leave(): Promise<void> {
    const { replicas, logger } = this.options;
    await replicas
      .leave()
      .catch((error: unknown) => logger.debug({ err: error }, 'others find out by themselves that this replica left'));
  }

  /**
   * All running runs of a runner that is gone for good go back to the queue.
   * @param held runs known to be there whose rows may not be written yet
   * @param sinceMs monotonic time of the first sign that it is gone
   */
  async takeOverAll(
    instance: string,
    cause: LeaveCause,
    held: readonly HeldRun[] = [],
    sinceMs = performance.now(),
  ): Promise<void> {
    const { runners, runs } = this.options;
    const runner = await runners.find(instance);
    const rows = await runs.runningOf(instance);
    // A row may be of an earlier life: the runner has given the run back since, and got it again.
    const known = new Set(rows.map(({ _id, epoch }) => `${_id} ${epoch}`));
    const isUnwritten = ({ runId, epoch }: HeldRun): boolean => !known.has(`${runId} ${epoch}`);
    const unwritten = held.filter(isUnwritten).map((run) => this.rowOf(run, instance));
    const all = [...rows, ...(await Promise.all(unwritten)).filter((row) => row !== undefined)];
    await Promise.all(all.map((row) => this.takeOver(row, cause, sinceMs)));
    if (runner) await runners.remove(runner);
  }

  /** One run of a runner that lives goes back to the queue. */
  async takeOverAlone(held: HeldRun, instance: string, cause: LeaveCause): Promise<void> {
    const row = await this.rowOf(held, instance);
    if (row?.epoch === held.epoch) await this.takeOver(row, cause);
  }

  /** When the owner was missed from which this run was taken over, if it was and has not been asked for since. */
  takenOverSince(runId: string): number | undefined {
    const sinceMs = this.takenOver.get(runId);
    this.takenOver.delete(runId);
    return sinceMs;
  }

  async takeOver(row: RunRow, cause: LeaveCause, sinceMs = performance.now()): Promise<void> {
    const { log, runs, logger, onTakeover } = this.options;
    const { _id: runId, sessionId, epoch } = row;
    // Before it is stored: the next owner may be found at once.
    this.takenOver.set(runId, sinceMs);
    const commitId = `takeover.${runId}.${epoch}`;
    const outcome = await log.submit(sessionId, { kind: 'takeover', commitId, runId, epoch, cause });
    // Another replica that saw the same loss may have been quicker.
    if (outcome.ok && outcome.replayed) return;
    if (outcome.ok) {
      onTakeover(cause);
      logger.info({ sessionId, runId, cause }, 'the run was taken back from its runner');
      return;
    }
    this.takenOver.delete(runId);
    await runs.project(rowOfRun(outcome.head, runId, epoch));
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
    const ripe = missing.filter((row) => missedBefore.has(row._id) && this.isOld(row));
    await Promise.all(ripe.map((row) => this.takeOver(row, 'unlisted')));
    return new Set(missing.map(({ _id }) => _id));
  }

  private isOld({ changedAtMs }: RunRow): boolean {
    return Date.now() - changedAtMs >= this.options.unlistedAfterMs;
  }

  /** The row of a run as the log shows it; undefined where this runner does not drive it any more. */
  private async rowOf({ sessionId, runId }: HeldRun, instance: string): Promise<RunRow | undefined> {
    const row = runRowOf((await this.options.log.readTip(sessionId)).head);
    return row?._id === runId && row.owner === instance && row.state === 'running' ? row : undefined;
  }

  private async tick(): Promise<void> {
    if (this.isRunning) return;
    this.isRunning = true;
    try {
      await this.poll();
    } catch (error) {
      // An outage of the store counts for nobody: the observer starts afresh.
      this.forget();
      this.options.logger.warn({ err: error }, 'the runners could not be observed');
    } finally {
      this.isRunning = false;
    }
  }

  private async poll(): Promise<void> {
    const { runners, runs } = this.options;
    const nowMs = performance.now();
    if (nowMs - this.lastPollMs > PAUSE_MS) this.forget();
    this.lastPollMs = nowMs;
    await this.pollReplicas(nowMs);
    const rows = await runners.listAll();
    const known = new Set(rows.map(({ _id }) => _id));
    if (this.polls++ % ORPHANS_EVERY === 0) this.orphans = (await runs.owners()).filter((owner) => !known.has(owner));
    const seen = [...rows, ...this.orphans.map((_id) => ({ _id, beat: -1, isLost: false, replica: '' }))];
    for (const runner of seen) this.observe(runner, nowMs);
    const ids = new Set(seen.map(({ _id }) => _id));
    for (const instance of this.observed.keys()) if (!ids.has(instance)) this.observed.delete(instance);
  }

  /** Shows that this replica lives, and looks which others do. */
  private async pollReplicas(nowMs: number): Promise<void> {
    const { replicas } = this.options;
    await replicas.beat();
    const rows = await replicas.list();
    for (const { _id, beat } of rows) {
      const before = this.replicas.get(_id);
      if (before?.beat !== beat) this.replicas.set(_id, { beat, changedAtMs: nowMs });
      else if (nowMs - before.changedAtMs > REPLICA_GONE_MS) await replicas.remove(_id);
    }
    const ids = new Set(rows.map(({ _id }) => _id));
    for (const instance of this.replicas.keys()) if (!ids.has(instance)) this.replicas.delete(instance);
  }

  private forget(): void {
    this.observed.clear();
    this.replicas.clear();
  }

  private observe(runner: Pick<RunnerRow, '_id' | 'beat' | 'isLost' | 'replica'>, nowMs: number): void {
    const { _id, beat } = runner;
    const before = this.observed.get(_id);
    if (before?.beat !== beat) this.observed.set(_id, { beat, changedAtMs: nowMs });
    else if (nowMs - before.changedAtMs > this.patienceMs(runner, nowMs))
      void this.takeOverLost(_id, before.changedAtMs);
  }

  /** How long the beat of a runner may stand still. */
  private patienceMs({ isLost, replica }: Pick<RunnerRow, 'isLost' | 'replica'>, nowMs: number): number {
    if (isLost) return MARKED_AFTER_MS;
    const { lostAfterMs } = this.options;
    return replica === undefined || this.isAlive(replica, nowMs) ? lostAfterMs : Math.min(lostAfterMs, UNATTACHED_MS);
  }

  private isAlive(replica: string, nowMs: number): boolean {
    const seen = this.replicas.get(replica);
    return seen !== undefined && nowMs - seen.changedAtMs <= REPLICA_SILENT_MS;
  }

  /** Beside the polls: they go on counting meanwhile. */
  private async takeOverLost(instance: string, sinceMs: number): Promise<void> {
    if (this.takingOver.has(instance)) return;
    this.takingOver.add(instance);
    try {
      await this.takeOverAll(instance, 'lease', [], sinceMs);
    } catch (error) {
      this.options.logger.warn({ err: error, runner: instance }, 'the runs of a lost runner could not be taken over');
    } finally {
      this.takingOver.delete(instance);
    }
  }
}

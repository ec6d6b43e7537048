import { isHalfMade, readTip } from '@margay/log';
import type { Collection } from 'mongodb';
import type { MongoCommitStore } from '../commits/mongo-commit-store';
import type { RunRow } from '../dispatch/run.repository';
import type { RunnerRepository } from '../dispatch/runner.repository';
import type { SessionRepository } from '../effects/session.repository';
import { eachOf, type Sweep } from '@margay/platform';
import type { SessionRows } from './derived-rows';
import { restoreSession } from './rebuild';

const QUEUE_EVERY_MS = 10_000;
const LOGS_EVERY_MS = 30_000;
const BATCH = 50;
const LOGS = 20;
/** Effects have had their time: what is still wrong then is not on its way. */
const STALE_MS = 30_000;
const DAY_MS = 24 * 3_600_000;
const ENDED_MAX = 500;

export interface QueueSweepPorts {
  store: MongoCommitStore;
  projections: SessionRows[];
  sessions: Pick<SessionRepository, 'runningAfter'>;
  runs: Collection<RunRow>;
}

/**
 * Runs without a row in the queue, and rows without their run: round and round over both sides, a batch at a time. Rows of
 * runs that ended a day ago go.
 */
export function queueSweep({ store, projections, sessions, runs }: QueueSweepPorts): Sweep {
  let afterRun = '';
  let afterSession = '';
  return {
    name: 'queue',
    everyMs: QUEUE_EVERY_MS,
    async sweep() {
      const beforeMs = Date.now() - STALE_MS;
      const rows = await runs
        .find({
          state: { $in: ['queued', 'running', 'waiting'] },
          changedAtMs: { $lt: beforeMs },
          _id: { $gt: afterRun },
        })
        .sort({ _id: 1 })
        .limit(BATCH)
        .toArray();
      const running = await sessions.runningAfter(afterSession, BATCH);
      afterRun = rows.length < BATCH ? '' : (rows.at(-1)?._id ?? '');
      afterSession = running.length < BATCH ? '' : (running.at(-1) ?? '');
      const sessionIds = new Set([...rows.map(({ sessionId }) => sessionId), ...running]);
      let wrong = 0;
      await eachOf([...sessionIds], async (sessionId) => {
        wrong += await restoreSession({ store, projections }, sessionId);
      });
      await removeEnded(runs, Date.now() - DAY_MS);
      return wrong;
    },
  };
}

async function removeEnded(runs: Collection<RunRow>, beforeMs: number): Promise<void> {
  const ended = await runs
    .find({ pool: '', state: 'done', changedAtMs: { $lt: beforeMs } })
    .limit(ENDED_MAX)
    .project<Pick<RunRow, '_id' | 'c'>>({ _id: 1, c: 1 })
    .toArray();
  if (ended.length === 0) return;
  const operations = ended.map(({ _id, c }) => ({ deleteOne: { filter: { _id, c, state: 'done' as const } } }));
  await runs.bulkWrite(operations, { ordered: false });
}

export interface LogSweepPorts {
  store: MongoCommitStore;
  projections: SessionRows[];
  /** Called for a log that is no session. */
  onHalfMade: (sessionId: string, tenantId: string) => Promise<void>;
}

/** All sessions in turn, slowly: what no row points at is found only from the logs. `margay rebuild` does it at once. */
export function logSweep({ store, projections, onHalfMade }: LogSweepPorts): Sweep {
  let after = '';
  return {
    name: 'logs',
    everyMs: LOGS_EVERY_MS,
    async sweep() {
      const sessionIds = await store.sessionsAfter(after, LOGS);
      let wrong = 0;
      after = sessionIds.length < LOGS ? '' : (sessionIds.at(-1) ?? '');
      await eachOf(sessionIds, async (sessionId) => {
        wrong += await restoreSession({ store, projections }, sessionId);
        const { head } = await readTip(store, sessionId);
        if (isHalfMade(head)) await onHalfMade(sessionId, head.tenantId);
      });
      return wrong;
    },
  };
}

/** Rows of runners that are long gone and own nothing; takeovers are `RunnerWatch`'s. */
export function runnerSweep(runners: Pick<RunnerRepository, 'listAll' | 'remove'>, runs: Collection<RunRow>): Sweep {
  return {
    name: 'runners',
    everyMs: 6 * QUEUE_EVERY_MS,
    async sweep() {
      const gone = (await runners.listAll()).filter(({ seenAt }) => Date.now() - seenAt.getTime() > DAY_MS);
      let removed = 0;
      for (const runner of gone.slice(0, BATCH)) {
        if (await runs.findOne({ owner: runner._id, state: 'running' })) continue;
        await runners.remove(runner);
        removed += 1;
      }
      return removed;
    },
  };
}

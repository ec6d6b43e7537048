import type { Logger, Sweep } from '@margay/platform';
import type { SessionLog } from '../commits/session-log';
import { rowOfRun, type RunRepository, type RunRow } from '../dispatch/run.repository';

const EVERY_MS = 1_000;
const BATCH = 100;

export interface QuestionSweepPorts {
  log: SessionLog;
  runs: RunRepository;
  logger: Logger;
}

/** Times questions out, whether their run waits, is queued, or is driven. */
export function questionSweep({ log, runs, logger }: QuestionSweepPorts): Sweep {
  const expire = (row: RunRow, nowMs: number): Promise<number> =>
    expireOf(log, runs, row, nowMs).catch((error: unknown) => {
      logger.warn({ err: error, sessionId: row.sessionId }, 'a question could not be timed out');
      return 0;
    });
  return {
    name: 'questions',
    everyMs: EVERY_MS,
    async sweep() {
      const nowMs = Date.now();
      const expired = await Promise.all((await runs.due(nowMs, BATCH)).map((row) => expire(row, nowMs)));
      return expired.reduce((sum, count) => sum + count, 0);
    },
  };
}

async function expireOf(log: SessionLog, runs: RunRepository, row: RunRow, nowMs: number): Promise<number> {
  const { head } = await log.readTip(row.sessionId);
  const due = (head.questions ?? []).filter(({ expiresTs }) => expiresTs !== null && expiresTs <= nowMs * 1_000);
  let expired = 0;
  for (const { callId } of due) {
    const outcome = await log.submit(row.sessionId, { kind: 'expire', commitId: `expire.${callId}`, callId });
    if (outcome.ok) expired += 1;
  }
  // The row was stale: it is written again from the head.
  if (due.length === 0) await runs.project(rowOfRun(head, row._id, row.epoch));
  return expired;
}

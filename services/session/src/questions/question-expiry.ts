import type { Logger } from '@margay/platform';
import type { SessionLog } from '../commits/session-log';
import type { RunRepository, RunRow } from '../dispatch/run.repository';
import { rowOfRun } from '../dispatch/run.repository';

const BATCH = 100;

/** Times questions out, whether their run waits, is queued, or is driven. One sweep; idempotent. */
export async function expireQuestions(
  { log, runs, logger }: { log: SessionLog; runs: RunRepository; logger: Logger },
  nowMs: number,
): Promise<number> {
  const due = await runs.due(nowMs, BATCH);
  const expired = await Promise.all(
    due.map((row) =>
      expireOf(log, runs, row, nowMs).catch((error: unknown) => {
        logger.warn({ err: error, sessionId: row.sessionId }, 'a question could not be timed out');
        return 0;
      }),
    ),
  );
  return expired.reduce((sum, count) => sum + count, 0);
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

import type { executorPb } from '@margay/contracts';
import { SANDBOX_LOST, type ToolOutcome } from '@margay/engine';

const STATUSES = new Set(['ok', 'error', 'timed_out', 'killed', 'cancelled', 'unknown']);

/** What ended a call from outside, for those who can do something about it. */
const LIMITS: Readonly<Record<string, string>> = {
  memory: 'its sandbox ran out of memory',
  processes: 'its sandbox had too many processes',
  disk: 'its workspace is full',
  drain: 'its sandbox had to leave its machine',
  restart: 'its sandbox ended and was started again',
};

/** A call's end, as tool-executor tells it. */
export function outcomeOf(finished: executorPb.ExecuteFinished, incarnation: string): ToolOutcome {
  const { status, resultJson, changedFiles, fileVersion, unchanged, limitHit } = finished;
  const known = STATUSES.has(status) ? (status as ToolOutcome['status']) : 'error';
  const result: unknown = resultJson === '' ? null : JSON.parse(resultJson);
  return {
    status: known,
    result: known === 'ok' ? withLimit(result, limitHit) : result,
    ...(known === 'ok' ? {} : { error: errorOf(known, result, limitHit) }),
    changedFiles,
    ...(fileVersion ? { fileVersion } : {}),
    ...(unchanged ? { isUnchanged: true } : {}),
    ...(incarnation === '' ? {} : { incarnation }),
  };
}

/** A command that came to its end may have met a limit; of its time a result tells by itself. */
function withLimit(result: unknown, limitHit: string): unknown {
  if (limitHit === '' || limitHit === 'wall_time' || typeof result !== 'object' || result === null) return result;
  return { ...result, limit_hit: limitHit };
}

function errorOf(status: ToolOutcome['status'], result: unknown, limitHit: string): string {
  if (status === 'unknown' && limitHit === 'restart') return SANDBOX_LOST;
  const text = errorText(result);
  const limit = LIMITS[limitHit];
  return status === 'killed' && limit !== undefined ? `${limit} (${limitHit}). ${text}` : text;
}

function errorText(result: unknown): string {
  if (typeof result === 'string') return result;
  const { error, message } = (result ?? {}) as { error?: unknown; message?: unknown };
  if (typeof error === 'string') return error;
  return typeof message === 'string' ? message : 'the tool call failed';
}

import type { ToolOutcome } from '@margay/toolbox';
import type { StoredResult } from '../journal/entries';

/** The stored and sent form of an outcome; the result is always JSON, a plain text as a JSON string. */
export function storedResult(outcome: ToolOutcome): StoredResult {
  return {
    status: outcome.status,
    resultJson: JSON.stringify(outcome.result),
    limitHit: outcome.limitHit ?? '',
    changedFiles: outcome.changedFiles,
    durationMs: outcome.durationMs,
    unchanged: outcome.unchanged ?? false,
    ...(outcome.exitCode === undefined ? {} : { exitCode: outcome.exitCode }),
    ...(outcome.fileVersion === undefined ? {} : { fileVersion: outcome.fileVersion }),
  };
}

/** Of a call whose daemon died between start and result nobody knows whether it took effect. */
export function unknownResult(toolId: string): StoredResult {
  return storedResult({
    status: 'unknown',
    result: `The sandbox restarted while '${toolId}' was running; whether it took effect is unknown. Look before you repeat it.`,
    limitHit: 'restart',
    changedFiles: [],
    durationMs: 0,
  });
}

/** The container ended with everything in it, mostly since it ran out of memory. */
export function killedResult(toolId: string): StoredResult {
  return storedResult({
    status: 'killed',
    result: `'${toolId}' was killed: the container ended and was started again, mostly a sign that memory ran out.`,
    limitHit: 'restart',
    changedFiles: [],
    durationMs: 0,
  });
}

/** What is not written down first must not run: it might run twice. */
export function notRun(toolId: string, cause: unknown): StoredResult {
  const { code } = cause as NodeJS.ErrnoException;
  const why = code === 'ENOSPC' || code === 'EDQUOT' ? 'its disk is full' : `writing failed (${code ?? 'unknown'})`;
  return storedResult({
    status: 'error',
    result: `journal_failed: '${toolId}' was not run, since the sandbox cannot write it down: ${why}. Free space, then try again.`,
    limitHit: 'disk',
    changedFiles: [],
    durationMs: 0,
  });
}

/** 95 % of what the workspace may take are taken; beyond its end the whole sandbox would go. */
export function workspaceFull(toolId: string): StoredResult {
  return storedResult({
    status: 'error',
    result: `workspace_full: '${toolId}' was not run, since the workspace is full. Remove files that are not needed, then try again.`,
    limitHit: 'disk',
    changedFiles: [],
    durationMs: 0,
  });
}

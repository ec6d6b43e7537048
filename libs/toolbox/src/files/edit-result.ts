import { realpath } from 'node:fs/promises';
import { FILE_HEADERS_ONLY, createTwoFilesPatch } from 'diff';
import type { CallContext, ToolOutcome, ToolResultValue } from '../outcome';
import type { PathPolicy } from './paths';
import { commitFiles, discardFiles, stageFiles, type FileChange } from './replace-files';

/** Past this the change is written, but shown without a diff. */
const DIFF_TIMEOUT_MS = 2_000;

/** One unified diff over all changes with `---`, `+++` and `@@` headers; empty when nothing visible changed. */
export function unifiedDiff(changes: readonly FileChange[], paths: PathPolicy): string {
  return changes
    .filter((change) => (change.before ?? '') !== change.after)
    .map((change) => {
      const shown = paths.display(change.path);
      const from = change.before === null ? '/dev/null' : `a/${shown}`;
      const options = { context: 3, timeout: DIFF_TIMEOUT_MS, headerOptions: FILE_HEADERS_ONLY };
      return (
        createTwoFilesPatch(from, `b/${shown}`, change.before ?? '', change.after, undefined, undefined, options) ?? ''
      );
    })
    .join('');
}

export interface EditResultOptions {
  title: string;
  /** Result text when the diff is empty. */
  withoutDiff: string;
}

export function editResult(
  changes: readonly FileChange[],
  paths: PathPolicy,
  options: EditResultOptions,
): ToolResultValue {
  const text = unifiedDiff(changes, paths);
  if (text === '') return options.withoutDiff;
  return { kind: 'diff', title: options.title, text, files: changes.map((change) => paths.display(change.path)) };
}

/** Stages, announces and renames an edit, so that a journal can finish it after a crash. */
export async function writeEdit(
  changes: readonly FileChange[],
  result: ToolResultValue,
  call: CallContext,
): Promise<ToolOutcome> {
  const startedAt = performance.now();
  const targets = await Promise.all(changes.map(async (change) => ({ ...change, path: await targetOf(change.path) })));
  const outcome: ToolOutcome = {
    status: 'ok',
    result,
    changedFiles: targets.map((change) => change.path),
    durationMs: Math.round(performance.now() - startedAt),
  };
  const files = await stageFiles(targets);
  if (call.signal.aborted) {
    await discardFiles(files);
    call.signal.throwIfAborted();
  }
  await call.onPrepared?.({ files, outcome });
  await commitFiles(files);
  return outcome;
}

/** A rename would replace a link by a file; what the link leads to is meant. */
async function targetOf(file: string): Promise<string> {
  try {
    return await realpath(file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return file;
    throw error;
  }
}

import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const run = promisify(execFile);

const TIMEOUT_MS = 10_000;
/** Some 400,000 paths. */
const MAX_BYTES = 32 * 1024 * 1024;
/** The repository's own settings must not start programs for the sake of a list. */
const SAFE = ['-c', 'core.fsmonitor=false', '-c', 'core.hooksPath=/dev/null'];
const WORDS_MAX_CHARS = 400;

export interface GitPlace {
  /** The folder in which git works. */
  root: string;
  /** The whole environment of git. */
  environment: Readonly<Record<string, string>>;
}

export interface GitEnd {
  isDone: boolean;
  output: string;
  /** What git said of its failure, cut to a line or two. */
  words: string;
}

/** Runs git without hooks, monitors and questions. Never rejects: git may be missing, and most failures are answers. */
export async function runGit(
  { root, environment }: GitPlace,
  words: readonly string[],
  timeoutMs = TIMEOUT_MS,
): Promise<GitEnd> {
  const settings = { ...environment, GIT_OPTIONAL_LOCKS: '0', GIT_TERMINAL_PROMPT: '0', LC_ALL: 'C' };
  const options = { cwd: root, env: settings, timeout: timeoutMs, maxBuffer: MAX_BYTES };
  return run('git', [...SAFE, ...words], options).then(
    ({ stdout }) => ({ isDone: true, output: stdout, words: '' }),
    (error: { stderr?: string; message?: string }) => ({
      isDone: false,
      output: '',
      words: (error.stderr ?? error.message ?? '').trim().slice(0, WORDS_MAX_CHARS),
    }),
  );
}

/** What git answers; undefined where it fails. */
export async function askGit(place: GitPlace, words: readonly string[]): Promise<string | undefined> {
  const { isDone, output } = await runGit(place, words);
  return isDone ? output : undefined;
}

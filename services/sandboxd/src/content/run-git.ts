import { spawn } from 'node:child_process';

export interface GitRun {
  cwd: string;
  environment: Readonly<Record<string, string>>;
  signal: AbortSignal;
  /** A piece of what it says, progress included. */
  onWords?: (words: string) => void;
}

export interface GitEnd {
  isWell: boolean;
  out: string;
  /** The last of what it said. */
  words: string;
}

const WORDS_KEPT = 16 * 1024;

/**
 * Settings for git on foreign repositories: nobody is asked, nothing but https is spoken, and nothing is run that a
 * repository, or an earlier command in the same home, could have put in its way: no hooks, filters, helpers or templates.
 */
export function safeEnvironment(environment: Readonly<Record<string, string>>): Record<string, string> {
  const settings = [
    ['core.hooksPath', '/dev/null'],
    ['core.fsmonitor', 'false'],
    ['credential.helper', ''],
    ['protocol.allow', 'never'],
    ['protocol.https.allow', 'always'],
    ['init.templateDir', ''],
    ['gc.auto', '0'],
    ['maintenance.auto', 'false'],
    ['advice.detachedHead', 'false'],
  ];
  const before = Number(environment['GIT_CONFIG_COUNT'] ?? 0) || 0;
  const added = settings.flatMap(([key = '', value = ''], index) => [
    [`GIT_CONFIG_KEY_${before + index}`, key],
    [`GIT_CONFIG_VALUE_${before + index}`, value],
  ]);
  return {
    ...environment,
    ...Object.fromEntries(added),
    GIT_CONFIG_COUNT: String(before + settings.length),
    GIT_CONFIG_NOSYSTEM: '1',
    GIT_CONFIG_GLOBAL: '/dev/null',
    GIT_ATTR_NOSYSTEM: '1',
    GIT_ALLOW_PROTOCOL: 'https',
    GIT_TERMINAL_PROMPT: '0',
    GIT_ASKPASS: '/bin/false',
    SSH_ASKPASS: '/bin/false',
    GIT_LFS_SKIP_SMUDGE: '1',
    LC_ALL: 'C',
  };
}

/** Runs git to its end; breaking off ends everything it started. */
export async function runGit(words: readonly string[], run: GitRun): Promise<GitEnd> {
  run.signal.throwIfAborted();
  const child = spawn('git', words, {
    cwd: run.cwd,
    env: run.environment,
    detached: true,
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  const end = (): void => {
    if (child.pid !== undefined) killGroup(child.pid);
  };
  run.signal.addEventListener('abort', end, { once: true });
  let [out, said] = ['', ''];
  child.stdout.on('data', (chunk: Buffer) => (out = (out + chunk.toString()).slice(0, WORDS_KEPT)));
  child.stderr.on('data', (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(-WORDS_KEPT);
    run.onWords?.(chunk.toString());
  });
  try {
    const isWell = await new Promise<boolean>((resolve, reject) => {
      child.once('error', reject);
      child.once('close', (code) => resolve(code === 0));
    });
    run.signal.throwIfAborted();
    return { isWell, out, words: said };
  } finally {
    run.signal.removeEventListener('abort', end);
  }
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

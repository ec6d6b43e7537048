import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { CALL_MARKER } from './process-tree';

/** Limits of each process a shell starts; absent = none. */
export interface ShellLimits {
  /** Private writable memory of one process. */
  memoryBytes?: number;
  /** Processes and threads of the user; only where the user is the sandbox's own. */
  processes?: number;
  fileBytes?: number;
  openFiles?: number;
  /** Of one process, and not of those in the background. */
  cpuSeconds?: number;
}

const MIB = 1024 ** 2;
/** Limits that do not depend on how large a sandbox is (ops §13.6). */
export const PROFILES = {
  default: { cpuSeconds: 300, fileBytes: 1024 * MIB, openFiles: 1024 },
  strict: { cpuSeconds: 120, fileBytes: 64 * MIB, openFiles: 256 },
} as const satisfies Record<string, ShellLimits>;

export const DEFAULT_LIMITS: ShellLimits = { memoryBytes: 2048 * MIB, processes: 512, ...PROFILES.default };

export interface SpawnShellOptions {
  command: string;
  cwd: string;
  marker: string;
  environment: Readonly<Record<string, string>>;
  limits: ShellLimits;
  /** A pseudo-terminal around the command, by script(1). */
  hasTerminal: boolean;
  stdin: 'ignore' | 'pipe';
  /** Put before the command, e.g. bubblewrap and its options. */
  wrapper?: readonly string[];
}

const INTERPRETER = ['/bin/bash', '/usr/bin/bash'].find((file) => existsSync(file)) ?? '/bin/sh';
const SCRIPT = ['/usr/bin/script', '/bin/script'].find((file) => existsSync(file));

export type StartedShell = { child: ChildProcess; pid: number } | { failure: string };

/** Starts a command in its own process group with stdout and stderr merged on `stdout`, in the order written. */
export async function spawnShell(options: SpawnShellOptions): Promise<StartedShell> {
  const run = options.hasTerminal && SCRIPT !== undefined ? [SCRIPT, '-qefc', options.command, '/dev/null'] : undefined;
  const argv = [...(options.wrapper ?? []), ...(run ?? [INTERPRETER, '-c', options.command])];
  try {
    const child = spawn('/bin/sh', ['-c', `${preamble(options.limits)}exec "$@"`, 'margay-shell', ...argv], {
      cwd: options.cwd,
      env: { ...options.environment, SHELL: INTERPRETER, [CALL_MARKER]: options.marker },
      detached: true,
      stdio: [options.stdin, 'pipe', 'ignore'],
    });
    if (child.pid !== undefined) return { child, pid: child.pid };
    const [error] = (await once(child, 'error')) as [Error];
    return { failure: error.message };
  } catch (error) {
    // Some failures, e.g. a command line too long, are thrown instead.
    return { failure: (error as Error).message };
  }
}

/** One pipe for both streams keeps their order; the limits hold for everything the command starts. */
function preamble(limits: ShellLimits): string {
  const lines = ['exec 2>&1', 'ulimit -c 0 2>/dev/null'];
  const ulimit = (flag: string, value: number): string => `ulimit -${flag} ${Math.floor(value)} 2>/dev/null`;
  if (limits.memoryBytes !== undefined) lines.push(ulimit('d', limits.memoryBytes / 1024));
  // POSIX shells count file size in blocks of 512 bytes; dash calls -p what bash calls -u.
  if (limits.fileBytes !== undefined) lines.push(ulimit('f', limits.fileBytes / 512));
  if (limits.openFiles !== undefined) lines.push(ulimit('n', limits.openFiles));
  // A second lies between the signal that says so and the one that kills.
  if (limits.cpuSeconds !== undefined)
    lines.push(ulimit('S -t', limits.cpuSeconds), ulimit('H -t', limits.cpuSeconds + 1));
  if (limits.processes !== undefined)
    lines.push(`${ulimit('u', limits.processes)} || ${ulimit('p', limits.processes)}`);
  // Short of memory, the kernel should take a command before the daemon that watches it.
  lines.push('{ echo 500 > /proc/self/oom_score_adj; } 2>/dev/null');
  return `${lines.join('; ')}; `;
}

const PASSED_ON = ['PATH', 'HOME', 'LANG', 'TZ'] as const;

/** The whole environment of a command, built from nothing: no variable of this process leaks into it by accident. */
export function shellEnvironment(
  source: Readonly<Record<string, string | undefined>>,
  sessionId?: string,
): Record<string, string> {
  const environment: Record<string, string> = {
    PATH: '/usr/local/bin:/usr/bin:/bin',
    HOME: '/tmp',
    LANG: 'C.UTF-8',
    TZ: 'UTC',
    TERM: 'dumb',
    GIT_PAGER: 'cat',
    PAGER: 'cat',
    GIT_TERMINAL_PROMPT: '0',
  };
  for (const name of PASSED_ON) {
    const value = source[name];
    if (value !== undefined && value !== '') environment[name] = value;
  }
  if (sessionId !== undefined) environment['MARGAY_SESSION_ID'] = sessionId;
  return environment;
}

import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import type { OutputLog } from './output-log';
import { killTree, ticksNow, type TreeRoot } from './process-tree';
import { ShellSessions } from './shell-sessions';
import { DEFAULT_LIMITS, spawnShell, type ShellLimits } from './spawn-shell';

export interface ShellHostOptions {
  /** The whole environment of commands. */
  environment: Readonly<Record<string, string>>;
  limits?: ShellLimits;
  /** Put before every command, e.g. bubblewrap and its options. */
  wrapper?: readonly string[];
  /** Every process of this user that can be seen belongs to the sandbox, so that nothing of a call needs to survive its end. */
  ownsAllProcesses?: boolean;
}

export interface ShellRun {
  command: string;
  cwd: string;
  callId: string;
  hasTerminal: boolean;
  timeoutMs: number;
  signal: AbortSignal;
  output: OutputLog;
}

export interface ShellEnd {
  exitCode: number;
  isTimedOut: boolean;
}

/** TERM comes this long before KILL. */
const GRACE_MS = 1_000;
/** A background child may hold the pipe open after the command ended; its output is not waited for longer than this. */
const DRAIN_MS = 250;
const TIMED_OUT_CODE = 124;

/** Runs commands, each in its own process group, and remembers which are still running. */
export class ShellHost {
  readonly sessions: ShellSessions;
  private readonly surroundings: Required<ShellHostOptions>;
  private readonly running = new Map<number, string>();

  constructor(options: ShellHostOptions) {
    this.surroundings = { limits: DEFAULT_LIMITS, wrapper: [], ownsAllProcesses: false, ...options };
    // What serves in the background may use as much time as it likes.
    const limits = { ...this.surroundings.limits };
    delete limits.cpuSeconds;
    this.sessions = new ShellSessions({ ...this.surroundings, limits });
  }

  /**
   * Runs a command to its end. A time-out ends the whole tree and yields code 124 with the output so far; an aborted
   * signal ends it too and rejects with the signal's reason.
   */
  async run(run: ShellRun): Promise<ShellEnd> {
    run.signal.throwIfAborted();
    const since = this.surroundings.ownsAllProcesses ? { orphansSince: await ticksNow() } : {};
    const started = await spawnShell({ ...run, marker: run.callId, stdin: 'ignore', ...this.surroundings });
    if ('failure' in started) {
      await run.output.append(Buffer.from(started.failure));
      return { exitCode: 1, isTimedOut: false };
    }
    const { child, pid } = started;
    this.running.set(pid, run.callId);
    const drained = pump(child, run.output);
    // What a command leaves in the background is known as long as it holds the pipe.
    void drained.finally(() => this.running.delete(pid));
    return this.supervise({ tree: { pid, marker: run.callId, ...since }, exited: exitOf(child), drained }, run);
  }

  /** Ends everything that runs, background sessions included. */
  async killAll(graceMs: number): Promise<void> {
    const trees = [...this.running].map(([pid, marker]) => killTree({ pid, marker }, graceMs));
    await Promise.all([...trees, this.sessions.killAll(graceMs)]);
  }

  /**
   * Ends what outlived the calls that started it: background sessions, and whatever finished calls left behind.
   * @param isMeant of ids of calls
   */
  async killBackground(isMeant: (callId: string) => boolean, graceMs: number): Promise<void> {
    const { sessions, running } = this;
    // With processes of one's own, what has lost its parent is a leftover too; of whom is not known.
    const isIdle = ![...running.values(), ...sessions.starters].some((callId) => !isMeant(callId));
    const orphans = this.surroundings.ownsAllProcesses && isIdle ? { orphansSince: 0 } : {};
    await Promise.all([killTree({ marker: isMeant, ...orphans }, graceMs), sessions.killAll(graceMs, isMeant)]);
  }

  private async supervise(started: Supervised, run: ShellRun): Promise<ShellEnd> {
    const { tree, exited, drained } = started;
    const timer = new AbortController();
    const aborted = once(run.signal, 'abort', { signal: timer.signal }).then(() => 'aborted' as const);
    const late = delay(run.timeoutMs, 'timed_out' as const, { signal: timer.signal });
    try {
      const first = await Promise.race([exited, aborted, late]);
      if (typeof first !== 'number') await killTree(tree, graceOf(run.signal));
      await Promise.race([drained, delay(DRAIN_MS, undefined, { signal: timer.signal })]);
      if (first === 'aborted') run.signal.throwIfAborted();
      return typeof first === 'number'
        ? { exitCode: first, isTimedOut: false }
        : { exitCode: TIMED_OUT_CODE, isTimedOut: true };
    } finally {
      for (const abandoned of [aborted, late]) abandoned.catch(ignoreAbort);
      timer.abort();
    }
  }
}

interface Supervised {
  tree: TreeRoot;
  exited: Promise<number>;
  drained: Promise<void>;
}

/** A canceller may name its own grace in the reason. */
function graceOf(signal: AbortSignal): number {
  const { graceMs } = (signal.reason ?? {}) as { graceMs?: unknown };
  return typeof graceMs === 'number' ? Math.min(graceMs, GRACE_MS) : GRACE_MS;
}

function ignoreAbort(error: unknown): void {
  if ((error as Error).name !== 'AbortError') throw error;
}

/** The exit code, 128 + number for a signal, as shells report it. */
function exitOf(child: ChildProcess): Promise<number> {
  return new Promise((resolve) => {
    child.once('exit', (code, signal) => resolve(code ?? 128 + signalNumber(signal)));
  });
}

function signalNumber(signal: NodeJS.Signals | null): number {
  const numbers: Partial<Record<NodeJS.Signals, number>> = {
    SIGHUP: 1,
    SIGINT: 2,
    SIGABRT: 6,
    SIGKILL: 9,
    SIGSEGV: 11,
    SIGPIPE: 13,
    SIGTERM: 15,
    SIGXCPU: 24,
    SIGXFSZ: 25,
  };
  return (signal && numbers[signal]) ?? 0;
}

/** Moves output into the log, reading no faster than it is written; resolves when the pipe closes. */
async function pump(child: ChildProcess, output: OutputLog): Promise<void> {
  const { stdout } = child;
  if (!stdout) return;
  try {
    for await (const chunk of stdout) await output.append(chunk as Buffer);
  } catch (error) {
    // The pipe breaks when its writers are killed.
    if ((error as NodeJS.ErrnoException).code !== 'ERR_STREAM_PREMATURE_CLOSE') throw error;
  }
}

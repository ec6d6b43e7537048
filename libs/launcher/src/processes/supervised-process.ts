import { spawn, type ChildProcess } from 'node:child_process';
import { mkdir } from 'node:fs/promises';
import { connect } from 'node:net';
import { dirname } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { CancelledError, UnavailableError } from '@margay/errors';
import { endWithUs, signalQuietly } from './children';
import { lastLines, openLog, readLog } from './log-file';
import { endingWithParent } from './parent-death';
import type { PidLedger } from './pid-ledger';

const READY_TIMEOUT_MS = 120_000;

/** A line of its log, a URL that answers 200, or a loopback port that accepts connections. */
export type Readiness = { line: RegExp } | { url: string } | { port: number };

export interface ProcessExit {
  code: number | null;
  signal: NodeJS.Signals | null;
  /** Whether `stop` was called before. */
  expected: boolean;
}

export interface CommandProcessOptions {
  name: string;
  command: string;
  args: readonly string[];
  env: Readonly<NodeJS.ProcessEnv>;
  cwd?: string;
  /** Both output streams are appended here by the process itself, so it outlives a reader. */
  logFile: string;
  ready: Readiness;
  /** Default two minutes: one that ends before is noticed at once. */
  readyTimeoutMs?: number;
  onExit?: (exit: ProcessExit) => void;
  /** Records the process, so that a later start can end what a killed launcher left behind. */
  ledger?: PidLedger;
  /** Gives up a start that is not ready yet. */
  signal?: AbortSignal;
}

export interface SupervisedProcess {
  readonly name: string;
  readonly pid: number;
  readonly logFile: string;
  /** The match of `ready.line`. */
  readonly ready: RegExpMatchArray | undefined;
  readonly exited: Promise<ProcessExit>;
  isRunning(): boolean;
  /** Sends one signal to the process alone. */
  kill(signal: NodeJS.Signals): void;
  /** SIGTERM to its process group, SIGKILL after the grace (default 10 s); resolves when it is gone. Idempotent. */
  stop(graceMs?: number): Promise<void>;
}

/** Starts a command in a process group of its own and resolves once it is ready; a failed start leaves nothing behind. */
export async function startCommand(options: CommandProcessOptions): Promise<SupervisedProcess> {
  await mkdir(dirname(options.logFile), { recursive: true });
  const log = await openLog(options.logFile);
  const [command, args] = await endingWithParent(options.command, options.args);
  const child = spawn(command, args, {
    env: options.env,
    cwd: options.cwd,
    // An own group: a terminal's Ctrl-C reaches only the launcher, which then stops everything in order.
    detached: true,
    stdio: ['ignore', log.fd, log.fd],
  });
  endWithUs(child, true);
  const supervised = new ChildSupervisor(child, options);
  try {
    await supervised.spawned();
    await options.ledger?.add(options.name, supervised.pid);
    await supervised.waitUntilReady(log.offset);
    return supervised;
  } catch (error) {
    await supervised.stop(2_000);
    throw error;
  } finally {
    await log.close();
  }
}

class ChildSupervisor implements SupervisedProcess {
  ready: RegExpMatchArray | undefined;
  readonly exited: Promise<ProcessExit>;
  private exit: ProcessExit | undefined;
  private isStopping = false;
  private spawnError: Error | undefined;

  constructor(
    private readonly child: ChildProcess,
    private readonly options: CommandProcessOptions,
  ) {
    this.exited = new Promise((resolve) => {
      child.once('exit', (code, signal) => resolve(this.finish(code, signal)));
      child.once('error', (error) => {
        this.spawnError = error;
        if (child.pid === undefined) resolve(this.finish(null, null));
      });
    });
  }

  get name(): string {
    return this.options.name;
  }

  get logFile(): string {
    return this.options.logFile;
  }

  get pid(): number {
    return this.child.pid ?? 0;
  }

  isRunning(): boolean {
    return this.exit === undefined;
  }

  kill(signal: NodeJS.Signals): void {
    if (this.isRunning() && this.pid > 0) signalQuietly(this.pid, signal);
  }

  async stop(graceMs = 10_000): Promise<void> {
    this.isStopping = true;
    if (this.isRunning() && this.pid > 0) {
      signalQuietly(-this.pid, 'SIGTERM');
      if (!(await this.exitsWithin(graceMs))) signalQuietly(-this.pid, 'SIGKILL');
    }
    await this.exited;
    await this.options.ledger?.remove(this.pid);
  }

  async spawned(): Promise<void> {
    if (this.child.pid !== undefined) return;
    await this.exited;
    const cause = this.spawnError;
    throw new UnavailableError(
      'process_not_started',
      `cannot start ${this.name}: ${cause?.message ?? this.options.command}`,
      { cause },
    );
  }

  async waitUntilReady(logOffset: number): Promise<void> {
    const { readyTimeoutMs = READY_TIMEOUT_MS } = this.options;
    const deadline = Date.now() + readyTimeoutMs;
    while (!(await this.isReady(logOffset))) {
      if (!this.isRunning())
        throw await this.notReady(`ended (${describeExit(this.exit)}) before it was ready`, logOffset);
      if (this.options.signal?.aborted)
        throw new CancelledError('start_cancelled', `the start of ${this.name} was given up`);
      if (Date.now() > deadline) throw await this.notReady(`was not ready within ${readyTimeoutMs} ms`, logOffset);
      await sleep('line' in this.options.ready ? 5 : 25);
    }
  }

  private async isReady(logOffset: number): Promise<boolean> {
    const { ready } = this.options;
    if ('url' in ready) return answersOk(ready.url);
    if ('port' in ready) return acceptsConnections(ready.port);
    this.ready = (await readLog(this.logFile, logOffset)).match(ready.line) ?? undefined;
    return this.ready !== undefined;
  }

  private async notReady(what: string, logOffset: number): Promise<Error> {
    const said = await lastLines(this.logFile, logOffset);
    return new UnavailableError('process_not_ready', `${this.name} ${what}; see ${this.logFile}${said && `: ${said}`}`);
  }

  private async exitsWithin(limitMs: number): Promise<boolean> {
    const timer = new AbortController();
    const limit = sleep(limitMs, false, { signal: timer.signal }).catch(() => false);
    const isGone = await Promise.race([this.exited.then(() => true), limit]);
    timer.abort();
    return isGone;
  }

  private finish(code: number | null, signal: NodeJS.Signals | null): ProcessExit {
    const exit: ProcessExit = { code, signal, expected: this.isStopping };
    this.exit = exit;
    // Whatever it started in its own group must not outlive it.
    if (this.pid > 0) signalQuietly(-this.pid, 'SIGKILL');
    this.options.onExit?.(exit);
    return exit;
  }
}

export function describeExit(exit: ProcessExit | undefined): string {
  return exit?.signal ? `signal ${exit.signal}` : `exit code ${exit?.code ?? 'unknown'}`;
}

async function answersOk(url: string): Promise<boolean> {
  try {
    const response = await fetch(url, { signal: AbortSignal.timeout(2_000) });
    await response.body?.cancel();
    return response.status === 200;
  } catch {
    // Refused or timed out: not ready yet; the caller's deadline decides.
    return false;
  }
}

function acceptsConnections(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect({ host: '127.0.0.1', port });
    socket.once('connect', () => resolve(true)).once('error', () => resolve(false));
    socket.once('connect', () => socket.destroy());
  });
}

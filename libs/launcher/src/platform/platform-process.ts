import { setTimeout as sleep } from 'node:timers/promises';
import { noProgress, type Progress } from '../progress';
import { startProcess, type NodeProcessOptions } from '../processes/start-process';
import { describeExit, type ProcessExit, type SupervisedProcess } from '../processes/supervised-process';
import type { ServiceName } from './services';

const RESPAWN_LIMIT = 5;
const RESPAWN_WINDOW_MS = 60_000;

export interface PlatformProcessOptions {
  services: readonly ServiceName[];
  start: NodeProcessOptions;
  /** Start it again after a crash, at most five times a minute. */
  respawn: boolean;
  progress?: Progress;
  onExit?: (name: string, exit: ProcessExit) => void;
}

/** What is special about one life of a process. */
export interface Life {
  /** Added to its environment. */
  env?: Readonly<NodeJS.ProcessEnv>;
  /** `started`: its services are up, whether or not it says that it is ready. Default `ready`. */
  until?: 'ready' | 'started';
}

/** One Margay process: the same name and addresses over restarts. */
export class PlatformProcess {
  private current: SupervisedProcess | undefined;
  private isStopping = false;
  private starting: { done: Promise<void>; giveUp: AbortController } | undefined;
  private respawns: number[] = [];
  private respawning: Promise<void> | undefined;

  constructor(private readonly options: PlatformProcessOptions) {}

  get name(): string {
    return this.options.start.name;
  }

  get services(): readonly ServiceName[] {
    return this.options.services;
  }

  get logFile(): string {
    return this.options.start.logFile;
  }

  /** Of the running incarnation; undefined between two. */
  get pid(): number | undefined {
    return this.current?.isRunning() ? this.current.pid : undefined;
  }

  /** Resolves once the management endpoint says ready. */
  async start(life: Life = {}): Promise<void> {
    this.isStopping = false;
    const giveUp = new AbortController();
    const done = this.launch(giveUp.signal, life);
    this.starting = { done, giveUp };
    await done;
  }

  /** One signal to the process alone, e.g. SIGKILL or SIGSTOP in fault tests; resolves for SIGKILL when it is gone. */
  async kill(signal: NodeJS.Signals): Promise<void> {
    this.current?.kill(signal);
    if (signal === 'SIGKILL') await this.current?.exited;
  }

  async stop(graceMs?: number): Promise<void> {
    this.isStopping = true;
    this.starting?.giveUp.abort();
    await Promise.allSettled([this.respawning, this.starting?.done]);
    await this.current?.stop(graceMs);
  }

  private async launch(signal: AbortSignal, { env, until }: Life): Promise<void> {
    this.current = undefined;
    const { start } = this.options;
    const onExit = (exit: ProcessExit) => this.onExit(exit);
    const readyUrl = until === 'started' ? start.readyUrl?.replace(/readyz$/, 'startupz') : start.readyUrl;
    const own = { ...start, env: { ...start.env, ...env }, ...(readyUrl !== undefined && { readyUrl }) };
    this.current = await startProcess({ ...own, signal, onExit });
  }

  private onExit(exit: ProcessExit): void {
    this.options.onExit?.(this.name, exit);
    const wasReady = this.current !== undefined;
    if (exit.expected || this.isStopping || !wasReady || !this.options.respawn || this.respawning) return;
    this.respawning = this.respawn(exit).finally(() => (this.respawning = undefined));
  }

  private async respawn(exit: ProcessExit): Promise<void> {
    const { progress = noProgress } = this.options;
    this.respawns = [...this.respawns.filter((at) => Date.now() - at < RESPAWN_WINDOW_MS), Date.now()];
    if (this.respawns.length > RESPAWN_LIMIT) {
      progress(`${this.name} ended (${describeExit(exit)}) too often and stays down; see ${this.logFile}`);
      return;
    }
    progress(`${this.name} ended (${describeExit(exit)}), starting it again; see ${this.logFile}`);
    await sleep(200 * this.respawns.length);
    if (this.isStopping) return;
    try {
      await this.start();
    } catch (error) {
      if (!this.isStopping) progress(`${this.name} does not come up again: ${String(error)}`);
    }
  }
}

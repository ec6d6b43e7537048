import type { ChildProcess } from 'node:child_process';
import type { StopCause } from '@margay/engine';
import type { OwnedRun } from '../journal/grpc-journal';
import type { DrivenRun, RunEnd, RunLife } from '../runs/run-end';
import { describeDeath, type Death } from './death';
import { FromChild, type ToChild } from './messages';

export interface IsolatedRunPorts {
  /** Resolves with what `work` does once there is a place for one more process; rejects if the signal aborts before. */
  place: <T>(work: () => Promise<T>, signal: AbortSignal) => Promise<T>;
  start: () => ChildProcess;
  heapMb: number;
  instance: string;
  /** A child that was told to stop and has not ended by then is ended. */
  stopGraceMs: number;
  onEnded: (outcome: IsolatedOutcome) => void;
}

export type IsolatedOutcome = RunEnd['kind'] | 'died' | 'not_started';

/** A child is ended when so many looks in a row saw no beat of it. */
const LOOK_MS = 5_000;
const SILENT_LOOKS_MAX = 6;
const LEFT: RunEnd = { kind: 'left' };

/**
 * A run that is driven in a process of its own: whatever it does to its memory or event loop, nobody else is hit. A
 * process that ends without a word of farewell takes the blame: the run is lost, and the session service parks it.
 */
export class IsolatedRun implements DrivenRun {
  readonly run: OwnedRun;
  private grant: string;
  /** Aborts the wait for a place; a place that is taken is given back by the end of its process only. */
  private readonly waiting = new AbortController();
  private isStopped = false;
  private hasPlace = false;
  private child?: ChildProcess;
  private end?: RunEnd;
  private isReady = false;
  private wasSilent = false;
  private silentLooks = 0;
  private graceTimer?: NodeJS.Timeout;

  constructor(
    private readonly life: RunLife,
    private readonly ports: IsolatedRunPorts,
  ) {
    const { sessionId, runId, epoch, grant } = life.assign;
    this.run = { sessionId, runId, epoch };
    this.grant = grant;
  }

  renew(grant: string): void {
    this.grant = grant;
    this.say({ kind: 'grant', grant });
  }

  stop(cause: StopCause): void {
    if (this.isStopped) return;
    this.isStopped = true;
    if (!this.hasPlace) return this.waiting.abort();
    this.say({ kind: 'stop', cause });
    this.graceTimer = setTimeout(() => this.child?.kill('SIGKILL'), this.ports.stopGraceMs);
  }

  async drive(): Promise<RunEnd> {
    try {
      return await this.ports.place(() => this.inChild(), this.waiting.signal);
    } catch (error) {
      // Stopped while it waited for a place: whoever stopped it has the run.
      if (!this.isStopped) this.notStarted(error);
      return LEFT;
    } finally {
      clearTimeout(this.graceTimer);
    }
  }

  private async inChild(): Promise<RunEnd> {
    this.hasPlace = true;
    const looks = setInterval(() => this.look(), LOOK_MS);
    try {
      return this.judge(await this.lifeOfChild());
    } finally {
      clearInterval(looks);
      delete this.child;
    }
  }

  private lifeOfChild(): Promise<Death> {
    const child = this.ports.start();
    this.child = child;
    const { assign, failures } = this.life;
    this.life.logger.info({ childPid: child.pid }, 'a run is driven in a process of its own');
    this.say({ kind: 'assign', assign: { ...assign, grant: this.grant }, failures, instance: this.ports.instance });
    child.on('message', (message) => this.heard(message));
    return new Promise((resolve, reject) => {
      // A process that can't be started, or a channel that is gone: of the latter the exit tells more.
      child.on('error', (error) => (child.pid === undefined ? reject(error) : undefined));
      let death: Death | undefined;
      const settle = (): void => {
        // Its last words may come after its exit, never after the channel is closed.
        if (death && !child.connected) resolve(death);
      };
      child.once('exit', (code, killedBy) => {
        death = { code, signal: killedBy };
        settle();
      });
      child.once('disconnect', settle);
    });
  }

  private heard(message: unknown): void {
    const parsed = FromChild.safeParse(message);
    if (!parsed.success) return this.life.logger.warn('the process of a run said something that is not understood');
    this.silentLooks = 0;
    if (parsed.data.kind === 'ready') this.isReady = true;
    if (parsed.data.kind === 'ended') this.end = parsed.data.end;
  }

  /** Counted, not timed: after a pause of this process only one look has seen nothing. */
  private look(): void {
    this.silentLooks += 1;
    if (this.silentLooks < SILENT_LOOKS_MAX) return;
    this.wasSilent = true;
    this.child?.kill('SIGKILL');
  }

  private judge(death: Death): RunEnd {
    const { life, ports, end } = this;
    if (end) {
      ports.onEnded(end.kind);
      return end;
    }
    const detail = describeDeath(death, { heapMb: ports.heapMb, wasSilent: this.wasSilent });
    // Whoever was told to stop and did not in time has nothing to be blamed for; its run is in other hands.
    if (this.isStopped) {
      life.logger.warn({ detail }, 'the process of a run was stopped and said nothing more');
      ports.onEnded('left');
      return LEFT;
    }
    if (!this.isReady) {
      this.notStarted(new Error(detail));
      return LEFT;
    }
    life.logger.warn({ detail }, 'the process of a run has died');
    ports.onEnded('died');
    return { kind: 'lost', detail };
  }

  /** Nothing of the run has been looked at: it goes back uncounted, missing from the beats. */
  private notStarted(error: unknown): void {
    this.life.logger.error({ err: error }, 'a process for a run could not be started');
    this.ports.onEnded('not_started');
  }

  private say(message: ToChild): void {
    if (!this.child?.connected) return;
    // It may end at any moment; its exit tells.
    this.child.send(message, () => undefined);
  }
}

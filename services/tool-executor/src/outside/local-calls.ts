import type { Logger } from '@margay/platform';
import { setTimeout as delay } from 'node:timers/promises';
import type { GuardedCall, GuardStore, StoredResult } from './guard-store';
import type { OutsideTool } from './outside-tool';
import { CallStopped, perform, type Unfinished } from './perform';

export interface LocalCall {
  readonly call: GuardedCall;
  /** The stored result; undefined: the call is not this process's any more, look at its row. */
  readonly ended: Promise<StoredResult | undefined>;
  stop(why: CallStopped['why']): void;
}

export interface LocalCallsOptions {
  store: GuardStore;
  /** This process, as rows name it. */
  process: string;
  beatMs: number;
  logger: Logger;
}

const RETRY_FIRST_MS = 50;
const RETRY_MAX_MS = 1_000;

/** The calls that this process makes. They end, and their results are stored, whether or not somebody waits for them. */
export class LocalCalls {
  private readonly calls = new Map<string, LocalCall>();
  private timer: NodeJS.Timeout | undefined;
  private isBeating = false;
  private isClosed = false;

  constructor(private readonly options: LocalCallsOptions) {}

  find(callId: string): LocalCall | undefined {
    return this.calls.get(callId);
  }

  /** Makes a call whose row names this process. */
  start(tool: OutsideTool, call: GuardedCall, argsJson: string): LocalCall {
    const { callId, tenantId } = call;
    const stop = new AbortController();
    const ended = perform(tool, { callId, tenantId, argsJson }, stop.signal)
      .then((outcome) => this.store(callId, outcome, stop.signal))
      .finally(() => this.calls.delete(callId));
    ended.catch((error: unknown) => this.options.logger.error({ err: error, toolCallId: callId }, 'a call broke'));
    const local = { call, ended, stop: (why: CallStopped['why']) => stop.abort(new CallStopped(why)) };
    this.calls.set(callId, local);
    this.timer ??= setInterval(() => void this.beat(), this.options.beatMs).unref();
    return local;
  }

  /** Stops all that `isMeant`; resolves when their results are stored. */
  async stopAll(why: CallStopped['why'], isMeant: (call: GuardedCall) => boolean): Promise<void> {
    const meant = [...this.calls.values()].filter(({ call }) => isMeant(call));
    for (const call of meant) call.stop(why);
    await Promise.all(meant.map(({ ended }) => ended));
  }

  /** Waits a while for what runs, then gives it up in a way that others can go on from. */
  async close(drainMs: number): Promise<void> {
    const drained = Promise.allSettled([...this.calls.values()].map(({ ended }) => ended));
    const timer = new AbortController();
    await Promise.race([drained, delay(drainMs, undefined, { signal: timer.signal }).catch(() => undefined)]);
    timer.abort();
    this.isClosed = true;
    await Promise.allSettled([this.stopAll('shutdown', () => true)]);
    clearInterval(this.timer);
  }

  /** Shows that this process lives, and hears what was asked of its calls elsewhere. */
  private async beat(): Promise<void> {
    if (this.isBeating || this.calls.size === 0) return;
    this.isBeating = true;
    const { store, process, logger } = this.options;
    try {
      for (const row of await store.beat(process, [...this.calls.keys()])) {
        if (row.process !== process) this.calls.get(row.callId)?.stop('taken');
        else if (row.isCancelled) this.calls.get(row.callId)?.stop('cancelled');
      }
    } catch (error) {
      logger.warn({ err: error }, 'calls outside sandboxes could not be confirmed; trying again');
    } finally {
      this.isBeating = false;
    }
  }

  /** Until the store has it: a result that is lost would be `unknown` for ever. */
  private async store(
    callId: string,
    outcome: StoredResult | Unfinished,
    stop: AbortSignal,
  ): Promise<StoredResult | undefined> {
    for (let delayMs = RETRY_FIRST_MS; ; delayMs = Math.min(delayMs * 2, RETRY_MAX_MS)) {
      try {
        return await this.storeOnce(callId, outcome, stop);
      } catch (error) {
        this.options.logger.warn({ err: error, toolCallId: callId }, 'a result could not be stored; trying again');
        if (this.isClosed) return undefined;
        await delay(delayMs);
      }
    }
  }

  private async storeOnce(
    callId: string,
    outcome: StoredResult | Unfinished,
    { reason }: AbortSignal,
  ): Promise<StoredResult | undefined> {
    const { store, process } = this.options;
    if (reason instanceof CallStopped && reason.why === 'taken') return undefined;
    if (outcome === 'unsent') await store.remove(callId, process);
    else if (outcome === 'repeatable') await store.release(callId, process);
    else if (await store.finish(callId, process, outcome)) return outcome;
    return undefined;
  }
}

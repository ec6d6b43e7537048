import { createHash, randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { type executorPb, type RunGrant, type ToolDescriptor } from '@margay/contracts';
import {
  AlreadyExistsError,
  FailedPreconditionError,
  InvalidArgumentError,
  PermissionDeniedError,
  UnavailableError,
} from '@margay/errors';
import { ATTRIBUTE, iterateInSpan, type Logger } from '@margay/platform';
import { Turns } from '../process-driver/turns';
import { rankOf, type GuardedCall, type GuardRow, type GuardStore, type StoredResult } from './guard-store';
import { LocalCalls, type LocalCall } from './local-calls';
import type { OutsideTool } from './outside-tool';

export interface OutsideCallsOptions {
  store: GuardStore;
  tools: readonly OutsideTool[];
  logger: Logger;
  /** Of the store, which grants name. */
  generation: number;
  /** A process whose calls have not been confirmed for so long is gone. */
  lostMs: number;
}

/** A call as its row and the outside see it. */
interface Asked {
  call: GuardedCall;
  tool: OutsideTool;
  argsJson: string;
}

type Found = { local: LocalCall; isNew: boolean } | { result: StoredResult } | { elsewhere: GuardRow };

/** Confirmations per time after which a process counts as gone. */
const BEATS_PER_LOSS = 5;
const DRAIN_MS = 3_000;
const EXPIRE_MS = 3_600_000;

/**
 * Calls whose effect lies outside any sandbox. A row that exists before anything is sent lets each be made by one process
 * only; whoever asks again gets the stored result, waits for the process that is at it, or, once that is gone, repeats
 * the call with its key or learns that its outcome is unknown.
 */
export class OutsideCalls {
  private readonly process = randomBytes(8).toString('hex');
  private readonly tools: ReadonlyMap<string, OutsideTool>;
  private readonly local: LocalCalls;
  private readonly turns = new Turns();
  private readonly followers = new Set<{ call: GuardedCall; cut: AbortController }>();
  private readonly expiry: NodeJS.Timeout;
  private isClosing = false;

  constructor(private readonly options: OutsideCallsOptions) {
    const { store, logger, lostMs, tools } = options;
    this.tools = new Map(tools.map((tool) => [tool.descriptor.tool_id, tool]));
    this.local = new LocalCalls({ store, logger, process: this.process, beatMs: lostMs / BEATS_PER_LOSS });
    const expire = (): void =>
      void store.expire().catch((error: unknown) => logger.warn({ err: error }, 'old calls could not be deleted'));
    this.expiry = setInterval(expire, EXPIRE_MS);
    this.expiry.unref();
  }

  get descriptors(): ToolDescriptor[] {
    return [...this.tools.values()].map(({ descriptor }) => descriptor);
  }

  has(toolId: string): boolean {
    return this.tools.has(toolId);
  }

  /** Whether this process makes the call right now. */
  isMaking(callId: string): boolean {
    return this.local.find(callId) !== undefined;
  }

  /** Makes a call or attaches to it. Abandoning the iteration leaves it running. */
  async *execute(
    request: executorPb.ExecuteRequest,
    grant: RunGrant,
    signal: AbortSignal,
  ): AsyncIterable<executorPb.ExecuteResponse> {
    const asked = this.ask(request, grant);
    yield* iterateInSpan('outside.execute', attributesOf(asked), () => this.follow(asked, signal));
  }

  /** @returns undefined for a call that nobody knows here */
  async cancel(tenantId: string, sessionId: string, callId: string): Promise<'finished' | 'cancelled' | undefined> {
    const local = this.local.find(callId);
    const known = local?.call ?? (await this.options.store.find(callId));
    if (known?.tenantId !== tenantId || known.sessionId !== sessionId) return undefined;
    if ('state' in known && known.state === 'done') return 'finished';
    if (!local) await this.options.store.cancel(callId);
    local?.stop('cancelled');
    await local?.ended;
    return 'cancelled';
  }

  /** No call of a lower epoch is made afterwards; with `kill` those that are under way end. */
  async fence(tenantId: string, sessionId: string, fence: { epoch: number; kill: boolean }): Promise<void> {
    const { store, generation } = this.options;
    const rank = rankOf({ generation, epoch: fence.epoch });
    this.cutBelow(tenantId, sessionId, rank);
    const isMeant = (call: GuardedCall): boolean => isBelow(call, tenantId, sessionId, rank);
    // Also while the store is away: what this process does it can end by itself.
    const ending = fence.kill ? this.local.stopAll('killed', isMeant) : Promise.resolve();
    await store.raise(tenantId, sessionId, rank);
    if (fence.kill) await store.cancelBelow(tenantId, sessionId, rank);
    await ending;
    if (fence.kill) await this.local.stopAll('killed', isMeant); // begun before the epoch was raised
  }

  async close(): Promise<void> {
    this.isClosing = true;
    clearInterval(this.expiry);
    await this.local.close(DRAIN_MS);
  }

  private ask({ callId, toolId, argsJson }: executorPb.ExecuteRequest, grant: RunGrant): Asked {
    const tool = this.tools.get(toolId);
    if (!tool) throw new InvalidArgumentError('unknown_tool', `There is no tool ${toolId}.`);
    const { tenantId, sessionId, runId, storeGeneration, epoch } = grant;
    if (!callId.startsWith(`${sessionId}.`)) throw foreignCall();
    const { effect } = tool.descriptor;
    const argsHash = createHash('sha256').update(`${toolId}\0${argsJson}`).digest('hex');
    const rank = rankOf({ generation: storeGeneration, epoch });
    return { tool, argsJson, call: { callId, tenantId, sessionId, runId, rank, toolId, effect, argsHash } };
  }

  private async *follow(asked: Asked, signal: AbortSignal): AsyncIterable<executorPb.ExecuteResponse> {
    const follower = { call: asked.call, cut: new AbortController() };
    this.followers.add(follower);
    const left = AbortSignal.any([signal, follower.cut.signal]);
    try {
      await this.admit(asked.call);
      let found = await this.obtain(asked);
      const reattached = !('local' in found && found.isNew);
      yield { message: { $case: 'started', value: { reattached, incarnation: '' } } };
      for (;;) {
        left.throwIfAborted();
        if ('result' in found) return yield finished(found.result);
        const result = 'local' in found ? await until(found.local.ended, left) : undefined;
        if (result) found = { result };
        else found = 'elsewhere' in found ? await this.watch(asked, found.elsewhere, left) : await this.obtain(asked);
      }
    } finally {
      this.followers.delete(follower);
    }
  }

  private async admit({ tenantId, sessionId, rank }: GuardedCall): Promise<void> {
    if ((await this.options.store.raise(tenantId, sessionId, rank)) > rank) throw staleEpoch();
    this.cutBelow(tenantId, sessionId, rank);
  }

  private cutBelow(tenantId: string, sessionId: string, rank: number): void {
    for (const { call, cut } of this.followers) if (isBelow(call, tenantId, sessionId, rank)) cut.abort(staleEpoch());
  }

  /** One after the other per call: who comes second finds what the first one began. */
  private obtain(asked: Asked): Promise<Found> {
    return this.turns.take(asked.call.callId, () => this.findOrStart(asked));
  }

  private async findOrStart(asked: Asked): Promise<Found> {
    const { call } = asked;
    const { store } = this.options;
    if (this.isClosing) throw new UnavailableError('executor_closing', 'This tool-executor is shutting down.');
    for (;;) {
      const local = this.local.find(call.callId);
      if (local) return { local: refuseOther(call, local.call, local), isNew: false };
      const sinceMs = performance.now();
      if (await store.insert(call, this.process)) return this.start(asked, { sinceMs, isNew: true });
      const row = await store.find(call.callId);
      if (!row) continue;
      refuseOther(call, row, row);
      if (row.result) return { result: row.result };
      // Its insert was never answered, so nothing was sent either.
      if (row.process === this.process) return this.start(asked, { sinceMs, isNew: true });
      return { elsewhere: row };
    }
  }

  /**
   * The epoch may have been raised while the row was written: whoever raised it may have looked before it was there. And
   * this process may have stood still for so long that others took it for gone.
   */
  private async start(asked: Asked, { sinceMs, isNew }: { sinceMs: number; isNew: boolean }): Promise<Found> {
    const { call, tool, argsJson } = asked;
    const { store, lostMs } = this.options;
    try {
      await this.admit(call);
    } catch (error) {
      await store.remove(call.callId, this.process);
      throw error;
    }
    const nowMs = performance.now();
    if (nowMs - sinceMs < lostMs / 2) return { local: this.local.start(tool, call, argsJson), isNew };
    const [row] = await store.beat(this.process, [call.callId]);
    const isOurs = row?.process === this.process && row.state === 'sent';
    return isOurs ? this.start(asked, { sinceMs: nowMs, isNew }) : this.findOrStart(asked);
  }

  /** Waits for a call of another process: until its result is there, or that process is gone and we decide. */
  private async watch(asked: Asked, row: GuardRow, signal: AbortSignal): Promise<Found> {
    const { lostMs } = this.options;
    let seen = row;
    let sinceMs = performance.now();
    while (seen.process !== '' && performance.now() - sinceMs <= lostMs) {
      await delay(lostMs / BEATS_PER_LOSS / 2, undefined, { signal }).catch(() => signal.throwIfAborted());
      const now = await this.look(asked);
      if (now === 'gone') return this.obtain(asked);
      if (now !== 'away' && now.result) return { result: now.result };
      // While the store is away nobody can show that they live.
      if (now === 'away' || now.beat !== seen.beat || now.process !== seen.process) sinceMs = performance.now();
      if (now !== 'away') seen = now;
    }
    return this.turns.take(asked.call.callId, () => this.decide(asked, seen));
  }

  private async look({ call }: Asked): Promise<GuardRow | 'gone' | 'away'> {
    try {
      return (await this.options.store.find(call.callId)) ?? 'gone';
    } catch (error) {
      this.options.logger.warn({ err: error, toolCallId: call.callId }, 'a call could not be looked up; trying again');
      return 'away';
    }
  }

  /** The process that made the call is gone, and nobody knows how far it came. */
  private async decide(asked: Asked, seen: GuardRow): Promise<Found> {
    const { store } = this.options;
    const { call } = asked;
    const mayRepeat = call.effect !== 'unkeyed' && !seen.isCancelled;
    const sinceMs = performance.now();
    if (mayRepeat && (await store.take(seen, this.process, call.rank)))
      return this.start(asked, { sinceMs, isNew: false });
    if (!mayRepeat) await store.settle(seen, GONE);
    return this.findOrStart(asked);
  }
}

const GONE: StoredResult = {
  status: 'unknown',
  resultJson: JSON.stringify('the process that made the call is gone, and it left no result'),
  durationMs: 0,
};

function refuseOther<T>(call: GuardedCall, known: GuardedCall, value: T): T {
  if (known.tenantId !== call.tenantId || known.sessionId !== call.sessionId) throw foreignCall();
  if (known.argsHash === call.argsHash) return value;
  throw new AlreadyExistsError('call_args_mismatch', `Call ${call.callId} was made before with other arguments.`);
}

function isBelow(call: GuardedCall, tenantId: string, sessionId: string, rank: number): boolean {
  return call.tenantId === tenantId && call.sessionId === sessionId && call.rank < rank;
}

function staleEpoch(): Error {
  return new FailedPreconditionError('stale_epoch', 'Another process owns the run now.');
}

function foreignCall(): Error {
  return new PermissionDeniedError('foreign_call', 'The call belongs to another session than the grant.');
}

function until<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason as Error);
    signal.addEventListener('abort', onAbort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}

function finished({ status, resultJson, durationMs }: StoredResult): executorPb.ExecuteResponse {
  const value = { status, resultJson, durationMs, limitHit: '', changedFiles: [], unchanged: false };
  return { message: { $case: 'finished', value } };
}

function attributesOf({ call }: Asked) {
  return {
    [ATTRIBUTE.conversation]: call.sessionId,
    [ATTRIBUTE.tenant]: call.tenantId,
    [ATTRIBUTE.toolName]: call.toolId,
    [ATTRIBUTE.toolCallId]: call.callId,
    [ATTRIBUTE.toolEffect]: call.effect,
  };
}

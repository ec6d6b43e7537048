import path from 'node:path';
import type { EffectClass, sandboxdPb } from '@margay/contracts';
import { AlreadyExistsError } from '@margay/errors';
import { faultPoint } from '@margay/platform/faults';
import { recoverFiles, timeoutReason, treeMembers, type Toolbox, type ToolOutcome } from '@margay/toolbox';
import { LRUCache } from 'lru-cache';
import type { Epoch, SandboxState } from '../grants/sandbox-state';
import type { JournalRow, StoredResult } from '../journal/entries';
import type { Journal } from '../journal/journal';
import { killedForMemory } from '../limits/killed-for-memory';
import { Call, CallCancelled } from './call';
import { killedResult, notRun, storedResult, unknownResult, workspaceFull } from './finished';

export interface CallTableOptions {
  journal: Journal;
  state: SandboxState;
  toolbox: Toolbox;
  spillFolder: string;
  /** What became of calls that the end of the daemon interrupted, where nothing else tells. */
  interruptedAs?: 'killed' | 'unknown';
  /** No call takes longer, whatever it asks for. */
  wallMs?: number;
  /** How full the workspace is. */
  space?: { readonly isFull: boolean; readonly note: string | undefined };
}

export interface CallRequest {
  callId: string;
  toolId: string;
  argsJson: string;
  argHash: string;
  effect: EffectClass;
  timeoutMs: number;
  ifUnchanged?: sandboxdPb.FileVersion | undefined;
  runId: string;
  epoch: Epoch;
}

/** Finished calls without side effect are remembered this many, for a stream that broke. */
const REMEMBERED_PURE_CALLS = 64;
const NO_TIMEOUT = 0;

/** Runs each call at most once: finished → its stored result, running → the same process, unknown → a start. */
export class CallTable {
  private readonly running = new Map<string, { call: Call; request: CallRequest }>();
  private readonly pure = new LRUCache<string, Call>({ max: REMEMBERED_PURE_CALLS });
  /** Ended, but the journal could not take the result: as long as this process lives it is known here. */
  private readonly unstored = new Map<string, Call>();

  constructor(private readonly options: CallTableOptions) {}

  get runningCount(): number {
    return this.running.size;
  }

  /** Decides what an earlier life of the daemon left open; before any call is served. */
  async recover(): Promise<string[]> {
    const rows = this.options.journal.unfinished();
    for (const row of rows) await this.recoverRow(row);
    return rows.map((row) => row.started.callId);
  }

  /** The call to follow. Synchronous up to the point where a repetition would find it. */
  obtain(request: CallRequest): { call: Call; reattached: boolean } {
    const { callId, argHash } = request;
    const known = this.running.get(callId)?.call ?? this.pure.get(callId) ?? this.unstored.get(callId);
    const row = this.options.journal.find(callId);
    refuseOtherArguments(callId, argHash, known?.argHash ?? row?.started.argHash);
    if (known) return { call: known, reattached: true };
    if (row?.result) {
      const call = new Call(argHash, this.spillFile(callId), () => this.options.journal.result(row));
      return { call, reattached: true };
    }
    const call = new Call(argHash, this.spillFile(callId), (started) => this.run(started, request));
    this.running.set(callId, { call, request });
    return { call, reattached: false };
  }

  /** Ends a running call; resolves when nothing of it lives and its result is stored. */
  async cancel(callId: string, graceMs: number): Promise<'not_found' | 'finished' | 'cancelled'> {
    const running = this.running.get(callId);
    if (!running) {
      return this.pure.has(callId) || this.options.journal.find(callId) ? 'finished' : 'not_found';
    }
    running.call.stop(new CallCancelled('cancelled', graceMs));
    await running.call.ended;
    return 'cancelled';
  }

  /** Whether it has ever been asked for here, and not been forgotten. */
  knows(callId: string): boolean {
    return this.running.has(callId) || this.pure.has(callId) || this.options.journal.find(callId) !== undefined;
  }

  /** Resolves when all calls that run now have ended. */
  async idle(): Promise<void> {
    await Promise.all([...this.running.values()].map(({ call }) => call.ended));
  }

  /** Ends all running calls that `isMeant`. */
  async endAll(
    graceMs: number,
    isMeant: (request: CallRequest) => boolean = () => true,
    limitHit?: string,
  ): Promise<void> {
    const meant = [...this.running.values()].filter(({ request }) => isMeant(request));
    for (const { call } of meant) call.stop(new CallCancelled('killed', graceMs, limitHit));
    await Promise.all(meant.map(({ call }) => call.ended));
  }

  /** Ends the running call whose processes weigh most. */
  async endHeaviest(limitHit: string, weigh: (pids: readonly number[]) => Promise<number>): Promise<void> {
    const weighed = await Promise.all(
      [...this.running].map(async ([callId, { call }]) => ({
        call,
        weight: await weigh(await treeMembers({ marker: callId })),
      })),
    );
    const [heaviest] = weighed.sort((a, b) => b.weight - a.weight);
    heaviest?.call.stop(new CallCancelled('killed', 0, limitHit));
    await heaviest?.call.ended;
  }

  private async run(call: Call, request: CallRequest): Promise<StoredResult> {
    try {
      const result = await this.runJournaled(call, request);
      if (request.effect === 'pure') this.pure.set(request.callId, call);
      return result;
    } finally {
      this.running.delete(request.callId);
    }
  }

  private async runJournaled(call: Call, request: CallRequest): Promise<StoredResult> {
    const { journal, state } = this.options;
    if (request.effect === 'pure') return this.perform(call, request);
    const { callId, argHash, toolId, effect, runId, epoch } = request;
    try {
      await journal.started({ callId, argHash, toolId, effect, runId, ...epoch, at: Date.now() });
    } catch (error) {
      return notRun(toolId, error);
    }
    try {
      // The epoch may have been raised while the disk worked: then nothing has run, and may run for the new owner.
      state.assertCurrent(epoch);
    } catch (error) {
      await journal.forget([callId]);
      throw error;
    }
    const result = await this.perform(call, request);
    await faultPoint('sandboxd.before-result', () => detailOf(request));
    // Running it again would be worse than to forget with this process what came of it.
    await journal.finished(callId, result).catch(() => this.unstored.set(callId, call));
    await faultPoint('sandboxd.after-result', () => detailOf(request));
    return result;
  }

  private async perform(call: Call, request: CallRequest): Promise<StoredResult> {
    const { callId, toolId, ifUnchanged, effect } = request;
    const { space, wallMs = NO_TIMEOUT } = this.options;
    // A command may remove what fills it.
    if (effect === 'keyed' && space?.isFull) return workspaceFull(toolId);
    const timeoutMs = shorter(request.timeoutMs, wallMs);
    const late = (): void => call.stop(timeoutReason(toolId, timeoutMs));
    const timer = timeoutMs > NO_TIMEOUT ? setTimeout(late, timeoutMs) : undefined;
    try {
      await faultPoint('sandboxd.before-run', () => detailOf(request));
      const args = parseArgs(request.argsJson);
      const killedBefore = await killedForMemory();
      const ended = await this.options.toolbox.execute(toolId, args, {
        callId,
        signal: call.signal,
        output: call.output,
        onPrepared: (edit) => this.options.journal.prepared(callId, edit),
        ...(ifUnchanged ? { ifUnchanged } : {}),
      });
      const isOutOfMemory = ended.exitCode !== undefined && (await killedForMemory()) > killedBefore;
      const outcome = withNote(limited(ended, isOutOfMemory), space?.note);
      const reason: unknown = call.signal.reason;
      const isKilled = reason instanceof CallCancelled && reason.kind === 'killed' && outcome.status === 'cancelled';
      if (!isKilled) return storedResult(outcome);
      const limitHit = reason.limitHit ?? outcome.limitHit;
      return storedResult({ ...outcome, status: 'killed', ...(limitHit === undefined ? {} : { limitHit }) });
    } finally {
      clearTimeout(timer);
    }
  }

  private async recoverRow(row: JournalRow): Promise<void> {
    const { journal, interruptedAs } = this.options;
    const { callId, effect, toolId } = row.started;
    if (effect === 'unkeyed') {
      return journal.finished(callId, interruptedAs === 'killed' ? killedResult(toolId) : unknownResult(toolId));
    }
    // Nothing is written before it is prepared, so an unprepared keyed call may simply run again.
    const state = row.prepared ? await recoverFiles(row.prepared.files) : 'untouched';
    if (state === 'untouched') return journal.forget([callId]);
    const outcome = state === 'applied' ? row.prepared?.outcome : undefined;
    await journal.finished(callId, outcome ? storedResult(outcome) : unknownResult(toolId));
  }

  private spillFile(callId: string): string {
    return path.join(this.options.spillFolder, `${callId.replace(/[^\w.-]/g, '_')}.txt`);
  }
}

const KILLED_CODE = 137;
/** 128 and SIGXFSZ. */
const FILE_SIZE_CODE = 153;
/** 128 and SIGXCPU. */
const CPU_CODE = 152;

/** Of two time-outs, where `NO_TIMEOUT` is the longest. */
function shorter(one: number, other: number): number {
  const given = [one, other].filter((timeoutMs) => timeoutMs > NO_TIMEOUT);
  return given.length > 0 ? Math.min(...given) : NO_TIMEOUT;
}

/** By which limit a command ended, where it shows. */
function limited(outcome: ToolOutcome, isOutOfMemory: boolean): ToolOutcome {
  if (outcome.exitCode === CPU_CODE) return { ...outcome, limitHit: 'cpu' };
  if (outcome.exitCode === FILE_SIZE_CODE) return { ...outcome, limitHit: 'file_size' };
  if (!isOutOfMemory) return outcome;
  return { ...outcome, limitHit: 'memory', ...(outcome.exitCode === KILLED_CODE ? { status: 'killed' as const } : {}) };
}

function withNote(outcome: ToolOutcome, note: string | undefined): ToolOutcome {
  const { result } = outcome;
  if (note === undefined || typeof result !== 'object') return outcome;
  return { ...outcome, result: { ...result, note } };
}

function detailOf({ toolId, callId, argsJson }: CallRequest): string {
  return `${toolId} ${callId} ${argsJson}`;
}

function refuseOtherArguments(callId: string, argHash: string, known: string | undefined): void {
  if (known === undefined || known === argHash) return;
  throw new AlreadyExistsError('call_args_mismatch', `Call ${callId} was made before with other arguments.`);
}

function parseArgs(argsJson: string): unknown {
  return argsJson === '' ? {} : (JSON.parse(argsJson) as unknown);
}

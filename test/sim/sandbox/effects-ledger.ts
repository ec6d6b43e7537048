import type { EffectClass } from '@margay/contracts';
import type { World } from '../world/world';

/** One time that a call was started. */
export interface Execution {
  callId: string;
  effect: EffectClass;
  epoch: number;
  /** Where; undefined outside of sandboxes. */
  incarnation: string | undefined;
  startedAtMs: number;
  /** When it took effect, if it lived so long. */
  effectAtMs: number | undefined;
  /** What it would answer. */
  text: string;
}

/** The world as tools change it: what was started where, and what took effect. Nobody but the checks reads it. */
export class EffectsLedger {
  readonly executions = new Map<string, Execution[]>();
  private readonly fences = new Map<string, { epoch: number; kill: boolean; atMs: number }[]>();

  constructor(private readonly world: World) {}

  start(call: Pick<Execution, 'callId' | 'effect' | 'epoch' | 'incarnation'>): Execution {
    const all = this.executions.get(call.callId) ?? [];
    const text = `did ${call.callId}, ${call.effect === 'keyed' ? 'as its key says' : `time ${all.length + 1}`}`;
    const execution: Execution = { ...call, startedAtMs: this.world.time.nowMs, effectAtMs: undefined, text };
    all.push(execution);
    this.executions.set(call.callId, all);
    return execution;
  }

  takeEffect(execution: Execution): void {
    execution.effectAtMs = this.world.time.nowMs;
  }

  /** A session's sandbox has answered that it serves no lower epoch any more. */
  fenced(sessionId: string, epoch: number, kill: boolean): void {
    const all = this.fences.get(sessionId) ?? [];
    all.push({ epoch, kill, atMs: this.world.time.nowMs });
    this.fences.set(sessionId, all);
  }

  hasFence(sessionId: string, epoch: number): boolean {
    return (this.fences.get(sessionId) ?? []).some((fence) => fence.epoch >= epoch);
  }

  /** The first fence in force at this time for calls of this epoch. */
  fenceOf(sessionId: string, epoch: number, atMs: number, kind: 'start' | 'kill'): number | undefined {
    const all = this.fences.get(sessionId) ?? [];
    return all.find((fence) => fence.epoch > epoch && fence.atMs < atMs && (kind === 'start' || fence.kill))?.atMs;
  }
}

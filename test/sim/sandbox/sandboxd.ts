import type { EffectClass } from '@margay/contracts';
import type { World } from '../world/world';
import type { Execution } from './effects-ledger';

export interface SandboxCall {
  callId: string;
  argumentsText: string;
  effect: EffectClass;
  epoch: number;
  /** Empty = any. */
  incarnation: string;
}

export type SandboxAnswer =
  | { kind: 'started'; incarnation: string }
  | { kind: 'finished'; status: 'ok' | 'cancelled' | 'killed' | 'unknown'; text: string; incarnation: string }
  | { kind: 'wrong incarnation'; incarnation: string }
  /** A later owner has been here. */
  | { kind: 'stale' }
  /** Nobody knows how far the call came. */
  | { kind: 'silence' };

type Say = (answer: SandboxAnswer) => void;
type Result = Extract<SandboxAnswer, { kind: 'finished' }>;

/** A line of the journal, which outlives the daemon but not the sandbox. */
interface Row {
  call: SandboxCall;
  result: Result | undefined;
}

interface Running {
  call: SandboxCall;
  followers: Set<Say>;
  execution: Execution | undefined;
  isDead: boolean;
  onEnded: (() => void)[];
}

/** The daemon of one incarnation of a sandbox and its journal: a model of services/sandboxd with its rules. */
export class Sandboxd {
  isUp = true;
  private readonly journal = new Map<string, Row>();
  private readonly running = new Map<string, Running>();

  constructor(
    private readonly world: World,
    readonly incarnation: string,
    private highest: number,
  ) {}

  /** Runs a call or attaches to it. Whoever is not interested any more stops listening. */
  execute(call: SandboxCall, say: Say): void {
    const { world } = this;
    this.soon(() => {
      if (!this.isUp) return say({ kind: 'silence' });
      if (call.epoch < this.highest && world.has('lowerEpochRefused')) return say({ kind: 'stale' });
      this.raise(call.epoch);
      if (call.incarnation !== '' && call.incarnation !== this.incarnation && world.has('otherIncarnationRefused'))
        return say({ kind: 'wrong incarnation', incarnation: this.incarnation });
      this.obtain(call, say);
    });
  }

  /** Ends a running call. */
  cancel(callId: string): void {
    this.soon(() => {
      const running = this.running.get(callId);
      if (this.isUp && running) this.stop(running, 'cancelled');
    });
  }

  /** No call of a lower epoch starts afterwards; with `kill` those that run have ended. Rejects while it is down. */
  fence(epoch: number, kill: boolean): Promise<void> {
    return new Promise((resolve, reject) => {
      this.soon(() => {
        if (!this.isUp) return reject(new Error('the sandbox does not answer'));
        this.raise(epoch);
        const meant = kill ? [...this.running.values()].filter(({ call }) => call.epoch < epoch) : [];
        const ended = meant.map((running) => new Promise<void>((done) => running.onEnded.push(done)));
        for (const running of meant) this.stop(running, 'killed');
        void Promise.all(ended).then(() => this.soon(resolve));
      });
    });
  }

  /** The daemon dies, and with it all that it runs. */
  die(): void {
    this.isUp = false;
    for (const running of this.running.values()) {
      running.isDead = true;
      for (const say of running.followers) this.soon(() => say({ kind: 'silence' }));
      for (const done of running.onEnded) done();
    }
    this.running.clear();
  }

  /** A new life of the daemon decides what the last one left open. */
  comeUp(lowestEpoch: number): void {
    const { world } = this;
    this.highest = Math.max(this.highest, lowestEpoch);
    for (const [callId, row] of this.journal) {
      if (row.result) continue;
      if (row.call.effect !== 'unkeyed' || !world.has('restartIsUnknown')) this.journal.delete(callId);
      else row.result = this.finished('unknown', 'the sandbox restarted');
    }
    this.isUp = true;
  }

  /** A way to or from the daemon: it is on the same machine. */
  private soon(then: () => void): void {
    this.world.time.at(this.world.random.between(0.05, 0.5), then);
  }

  private raise(epoch: number): void {
    if (epoch <= this.highest) return;
    this.highest = epoch;
    for (const { call, followers } of this.running.values()) {
      if (call.epoch >= epoch) continue;
      for (const say of followers) this.soon(() => say({ kind: 'stale' }));
      followers.clear();
    }
  }

  private obtain(call: SandboxCall, say: Say): void {
    const { world } = this;
    const running = world.has('attachesToRunning') ? this.running.get(call.callId) : undefined;
    const row = this.journal.get(call.callId);
    const known = running?.call ?? row?.call;
    if (known && known.argumentsText !== call.argumentsText)
      world.fail('foreign call', `${call.callId} is journaled with ${known.argumentsText}, not ${call.argumentsText}`);
    if (running) {
      world.count('call attached to');
      running.followers.add(say);
      return this.soon(() => say({ kind: 'started', incarnation: this.incarnation }));
    }
    const { result } = row ?? {};
    if (result && world.has('resultFromJournal')) {
      world.count('result from the journal');
      return this.soon(() => say(result));
    }
    this.start(call, say);
  }

  private start(call: SandboxCall, say: Say): void {
    const { world } = this;
    const running: Running = { call, followers: new Set([say]), execution: undefined, isDead: false, onEnded: [] };
    this.running.set(call.callId, running);
    this.soon(() => say({ kind: 'started', incarnation: this.incarnation }));
    if (call.effect === 'pure' || !world.has('startedBeforeRun')) return this.perform(running);
    const fsyncMs = world.random.chance(0.05) ? world.random.between(5, 200) : world.random.between(0.1, 2);
    world.time.at(fsyncMs, () => {
      if (running.isDead) return;
      this.journal.set(call.callId, { call, result: undefined });
      // The epoch may have been raised while the disk worked: then nothing has run, and may run for the new owner.
      if (call.epoch >= this.highest || !world.has('lowerEpochRefused')) return this.perform(running);
      this.journal.delete(call.callId);
      this.leave(running, { kind: 'stale' });
    });
  }

  private perform(running: Running): void {
    const { time, random, effects } = this.world;
    const { callId, effect, epoch } = running.call;
    const execution = effects.start({ callId, effect, epoch, incarnation: this.incarnation });
    running.execution = execution;
    const durationMs = random.chance(0.15) ? random.between(300, 6_000) : random.between(1, 200);
    const ifAlive = (then: () => void) => (): void => {
      if (!running.isDead) then();
    };
    if (effect !== 'pure')
      time.at(
        random.between(0, durationMs),
        ifAlive(() => effects.takeEffect(execution)),
      );
    time.at(
      durationMs,
      ifAlive(() => this.finish(running, this.finished('ok', execution.text))),
    );
  }

  /** Between TERM and KILL it may still take effect. */
  private stop(running: Running, status: 'cancelled' | 'killed'): void {
    const { time, random } = this.world;
    time.at(random.between(1, 1_000), () => {
      if (running.isDead) return;
      running.isDead = true;
      this.finish(running, this.finished(status, `${status} before its end`));
    });
  }

  private finish(running: Running, result: Result): void {
    const { random, time } = this.world;
    const { callId, effect } = running.call;
    time.at(random.between(0.05, 1), () => {
      if (this.running.get(callId) !== running) return;
      if (effect !== 'pure') this.journal.set(callId, { call: running.call, result });
      this.leave(running, result);
    });
  }

  private leave(running: Running, answer: SandboxAnswer): void {
    running.isDead = true;
    const { callId } = running.call;
    if (this.running.get(callId) === running) this.running.delete(callId);
    for (const say of running.followers) this.soon(() => say(answer));
    for (const done of running.onEnded) done();
  }

  private finished(status: Result['status'], text: string): Result {
    return { kind: 'finished', status, text, incarnation: this.incarnation };
  }
}

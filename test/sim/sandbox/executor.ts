import type { Link } from '../world/link';
import { SimProcess } from '../world/sim-process';
import { StoreClient } from '../store/store-client';
import { OutsideCalls } from './outside-calls';
import type { SandboxAnswer, SandboxCall, Sandboxd } from './sandboxd';

export interface ToolCall extends SandboxCall {
  sessionId: string;
  /** Takes effect somewhere that no sandbox's journal knows of. */
  isOutside: boolean;
}

export type ExecutorAnswer = SandboxAnswer | { kind: 'failed'; text: string };

/** Sandboxes tried for one call. */
const ATTEMPTS = 3;

/** A replica of tool-executor: calls into sandboxes and outside of them, with the rules of services/tool-executor. */
export class Executor extends SimProcess {
  /** Another one after each start. */
  instance = '';
  private outside!: OutsideCalls;

  boot(): void {
    this.instance = `${this.name}#${this.life}`;
    this.outside = new OutsideCalls(this, new StoreClient(this));
  }

  /** Runs a call or attaches to it; a closed link leaves it running. */
  execute(call: ToolCall, link: Link, say: (answer: ExecutorAnswer) => void): void {
    const answer = (what: ExecutorAnswer): void => link.send(link.one, () => say(what));
    this.spawn(async () => answer(call.isOutside ? await this.outside.execute(call) : await this.serve(call, answer)));
  }

  cancel({ sessionId, callId }: ToolCall): void {
    this.world.sandboxOf(sessionId).daemon?.cancel(callId);
  }

  private async serve(call: ToolCall, answer: (what: ExecutorAnswer) => void): Promise<ExecutorAnswer> {
    const { world } = this;
    const sandbox = world.sandboxOf(call.sessionId);
    let mayHaveRun = false;
    for (let left = ATTEMPTS; ; left--) {
      if (!sandbox.isCurrent(call.epoch)) return { kind: 'stale' };
      const daemon = await this.reach(sandbox.obtain(call.epoch));
      const end = await this.through(daemon, call, answer);
      const isLost = call.effect === 'unkeyed' && mayHaveRun && world.has('doubtIsKept');
      if (end.kind === 'wrong incarnation' && isLost) return unknown('the sandbox was lost while the call ran');
      if (end.kind !== 'silence') return end;
      mayHaveRun = true;
      if (left > 1) continue;
      if (call.effect === 'unkeyed') return unknown('the sandbox was lost while the call ran');
      return { kind: 'failed', text: 'the sandbox ended again and again' };
    }
  }

  /** The last answer; `started` is passed on. */
  private through(
    daemon: Sandboxd,
    call: ToolCall,
    answer: (what: ExecutorAnswer) => void,
  ): Promise<Exclude<SandboxAnswer, { kind: 'started' }>> {
    const { life } = this;
    return new Promise((resolve) => {
      daemon.execute(call, (what) =>
        this.enter(life, () => {
          if (what.kind === 'started') answer(what);
          else resolve(what);
        }),
      );
    });
  }
}

function unknown(text: string): SandboxAnswer & { kind: 'finished' } {
  return { kind: 'finished', status: 'unknown', text, incarnation: '' };
}

import type { ToolDescriptor } from '@margay/contracts';
import { RunStopped, Tools, type ToolInvocation, type ToolOutcome, type WrongIncarnation } from '@margay/engine';
import type { Executor, ExecutorAnswer, ToolCall } from '../sandbox/executor';
import { Link } from '../world/link';
import type { RunLife } from './run-life';
import { OUTSIDE_TOOLS, TOOLS } from './tool-box';

type Options = Parameters<Tools['execute']>[1];
type Settled = ExecutorAnswer | { kind: 'link closed' } | { kind: 'left' };

const RETRY_MIN_MS = 20;
const RETRY_MAX_MS = 400;
/** An outcome that does not come after the end of a call was asked for is not waited for any longer. */
const CANCEL_WAIT_MS = 2_000;
const CANCELLED: ToolOutcome = { status: 'cancelled', result: null, error: 'cancelled' };

/** Tool calls of one run over a link to an executor, with the rules of the runner's own: a lost link leads to the same call again. */
export class LifeTools extends Tools {
  private link: Link | undefined;
  private executor: Executor | undefined;
  private readonly onLost = new Set<() => void>();

  constructor(private readonly life: RunLife) {
    super();
  }

  list(): Promise<ToolDescriptor[]> {
    return Promise.resolve(TOOLS);
  }

  close(): void {
    this.link?.close();
  }

  async execute(invocation: ToolInvocation, options: Options): Promise<ToolOutcome | WrongIncarnation> {
    const { signal } = options;
    const { runner } = this.life;
    let mayHaveRun = false;
    for (;;) {
      if (signal.aborted) return givenUp(invocation, signal, mayHaveRun);
      const end = await this.attempt(this.callOf(invocation, options.incarnation), options, () => (mayHaveRun = true));
      if (end.kind === 'stale') {
        this.life.stop('fenced');
        return CANCELLED;
      }
      if (end.kind === 'wrong incarnation') {
        const doubt = mayHaveRun && runner.world.has('doubtIsKept') ? { mayHaveRun: true } : {};
        return { status: 'wrong_incarnation', incarnation: end.incarnation, ...doubt };
      }
      if (end.kind === 'finished') return outcomeOf(end);
      if (end.kind === 'failed') return failed(invocation, mayHaveRun, end.text);
      if (end.kind === 'left') return givenUp(invocation, signal, mayHaveRun);
      mayHaveRun = true;
      options.onWaiting?.();
      await runner.sleep(runner.world.random.between(RETRY_MIN_MS, RETRY_MAX_MS));
    }
  }

  private callOf({ callId, args, effect, toolId }: ToolInvocation, incarnation: string): ToolCall {
    const { runner, sessionId, epoch } = this.life;
    const [, , step, index] = callId.split('.');
    return {
      callId: runner.world.has('callIdHoldsEpoch') ? callId : `${sessionId}.${step}.${index}`,
      argumentsText: JSON.stringify(args),
      effect,
      epoch,
      incarnation,
      sessionId,
      isOutside: OUTSIDE_TOOLS.has(toolId),
    };
  }

  private attempt(call: ToolCall, { signal, onStarted }: Options, onDoubt: () => void): Promise<Settled> {
    const { link, executor } = this.connected();
    return new Promise((resolve) => {
      const settle = (end: Settled): void => {
        this.onLost.delete(onLost);
        signal.removeEventListener('abort', onAbort);
        resolve(end);
      };
      const onLost = (): void => settle({ kind: 'link closed' });
      const onAbort = (): void => {
        if (isHandOver(signal)) return settle({ kind: 'left' });
        link.send(executor, () => executor.cancel(call));
        this.life.runner.after(CANCEL_WAIT_MS, () => settle({ kind: 'left' }));
      };
      this.onLost.add(onLost);
      signal.addEventListener('abort', onAbort, { once: true });
      link.send(executor, () =>
        executor.execute(call, link, (answer) => {
          if (answer.kind !== 'started') return settle(answer);
          onDoubt();
          onStarted?.();
        }),
      );
    });
  }

  /** All calls of a run share one link. */
  private connected(): { link: Link; executor: Executor } {
    if (this.link?.isOpen && this.executor) return { link: this.link, executor: this.executor };
    const { runner } = this.life;
    const executor = runner.world.random.pick(runner.executors);
    const link = new Link(runner, executor);
    this.link = link;
    this.executor = executor;
    link.onClose(runner, () => {
      for (const lost of [...this.onLost]) lost();
    });
    return { link, executor };
  }
}

function isHandOver({ reason }: AbortSignal): boolean {
  return reason instanceof RunStopped && reason.stopCause !== 'canceled';
}

/** The end of the call was asked for before its outcome was heard. */
function givenUp({ effect }: ToolInvocation, signal: AbortSignal, mayHaveRun: boolean): ToolOutcome {
  return mayHaveRun && effect === 'unkeyed' && !isHandOver(signal) ? { status: 'unknown', result: null } : CANCELLED;
}

/** What is not known of an unkeyed call is not called a failure: the model would repeat it. */
function failed({ effect }: ToolInvocation, mayHaveRun: boolean, error: string): ToolOutcome {
  const status = mayHaveRun && effect === 'unkeyed' ? 'unknown' : 'error';
  return { status, result: null, error };
}

function outcomeOf({ status, text, incarnation }: ExecutorAnswer & { kind: 'finished' }): ToolOutcome {
  return {
    status,
    result: text,
    ...(status === 'ok' ? {} : { error: text }),
    ...(incarnation === '' ? {} : { incarnation }),
  };
}

import { childOf, OVER, untilAborted } from '../abort';
import { ModelFailure, type Clock, type ModelAnswer, type ModelRequest } from '../ports';
import type { AgentRun } from './agent-run';
import type { DeltaStream } from './delta-stream';
import type { RunLimits } from './limits';
import { messageOf, plainText } from './plain-text';

/** A person interrupted the step. */
export class StepInterrupted extends Error {
  constructor() {
    super('interrupted by the user');
    this.name = 'StepInterrupted';
  }
}

/**
 * One attempt at a model call.
 * @throws ModelFailure, StepInterrupted, or the reason of the run's stop
 */
export async function attemptCall(run: AgentRun, request: ModelRequest, deltas: DeltaStream): Promise<ModelAnswer> {
  run.stop.throwIfAborted();
  const call = childOf(run.stop);
  const stopListening = run.onInterrupt(() => call.abort(new StepInterrupted()));
  const watchdog = new Watchdog(run.ports.clock, run.limits, (failure) => call.abort(failure));
  try {
    const answering = run.ports.model.call(request, {
      signal: call.signal,
      onText: (text) => {
        watchdog.touch();
        deltas.push(text);
      },
      onActivity: () => watchdog.touch(),
    });
    return checkAnswer(await untilAborted(answering, call.signal));
  } catch (error) {
    throw call.signal.aborted ? call.signal.reason : asFailure(error);
  } finally {
    watchdog.stop();
    stopListening();
    call.release();
  }
}

function asFailure(error: unknown): ModelFailure {
  if (error instanceof ModelFailure) return error;
  return new ModelFailure('unknown', plainText(`the model call failed: ${messageOf(error)}`), undefined, {
    cause: error,
  });
}

/** An answer that says nothing and cost nothing is none; one that was billed ends the turn. */
function checkAnswer(answer: ModelAnswer): ModelAnswer {
  if (answer.text !== '' || answer.toolCalls.length > 0) return answer;
  if (answer.finishReason === 'content_filter')
    throw new ModelFailure('content_policy', 'the provider withheld the answer by its content policy');
  if (answer.usage.outputTokens === 0) throw new ModelFailure('empty_response', 'the model sent an empty answer');
  return answer;
}

/** Ends an attempt that takes too long, or that falls silent after it began. */
class Watchdog {
  private readonly over = new AbortController();
  private readonly startedMs: number;
  private lastMs: number | undefined;

  constructor(
    private readonly clock: Clock,
    private readonly limits: RunLimits,
    onExpired: (failure: ModelFailure) => void,
  ) {
    this.startedMs = clock.monotonicMs();
    void this.watch(onExpired);
  }

  touch(): void {
    this.lastMs = this.clock.monotonicMs();
  }

  stop(): void {
    this.over.abort(OVER);
  }

  private async watch(onExpired: (failure: ModelFailure) => void): Promise<void> {
    while (!this.over.signal.aborted) {
      const leftMs = this.leftMs();
      if (leftMs <= 0) return onExpired(this.failure());
      // The first piece may come meanwhile, and shorten what is left.
      await this.clock.sleep(Math.min(leftMs, this.limits.chunkGapMs), this.over.signal);
    }
  }

  private leftMs(): number {
    const { attemptMs, chunkGapMs } = this.limits;
    const untilMs = Math.min(
      this.startedMs + attemptMs,
      this.lastMs === undefined ? Infinity : this.lastMs + chunkGapMs,
    );
    return untilMs - this.clock.monotonicMs();
  }

  private failure(): ModelFailure {
    const ranMs = this.clock.monotonicMs() - this.startedMs;
    const { attemptMs, chunkGapMs } = this.limits;
    return ranMs >= attemptMs
      ? new ModelFailure('timeout', `the model call took longer than ${attemptMs / 1000} s`)
      : new ModelFailure('timeout', `the model fell silent for ${chunkGapMs / 1000} s`);
  }
}

import { Model, ModelFailure, RunStopped, type ModelAnswer, type ModelRequest } from '@margay/engine';
import { ATTRIBUTE, withSpan } from '@margay/platform';
import type { RunnerMetrics } from './runner-metrics';
import type { StepOverhead } from './step-overhead';

type CallOptions = Parameters<Model['call']>[1];

export interface ModelObservation {
  /** Name of the provider in spans and metrics. */
  provider: string;
  metrics: RunnerMetrics;
  overhead: StepOverhead;
}

/** A model, each call of it in a span and measured. Nothing of what is said gets into either. */
export class ObservedModel extends Model {
  constructor(
    private readonly model: Model,
    private readonly observation: ModelObservation,
  ) {
    super();
  }

  override get defaultModel(): string {
    return this.model.defaultModel;
  }

  call(request: ModelRequest, options: CallOptions): Promise<ModelAnswer> {
    const { provider, overhead } = this.observation;
    overhead.modelCalled();
    const attributes = {
      [ATTRIBUTE.operation]: 'chat',
      [ATTRIBUTE.provider]: provider,
      [ATTRIBUTE.requestModel]: request.model,
    };
    const errorType = (error: unknown) => outcomeOf(error, options.signal);
    return withSpan(
      `chat ${request.model}`,
      attributes,
      async (span) => {
        const answer = await this.measured(request, options);
        span?.setAttributes(answerAttributes(answer));
        return answer;
      },
      { kind: 'client', errorType },
    );
  }

  private async measured(request: ModelRequest, options: CallOptions): Promise<ModelAnswer> {
    const { provider, metrics, overhead } = this.observation;
    const { model } = request;
    const startedMs = performance.now();
    const seconds = (): number => (performance.now() - startedMs) / 1_000;
    const settled = (outcome: string): void => metrics.modelCall({ provider, model, outcome, seconds: seconds() });
    try {
      const answer = await this.model.call(
        request,
        onFirstPiece(options, () => metrics.firstPiece(model, seconds())),
      );
      settled('ok');
      count(metrics, model, answer);
      overhead.modelAnswered(answer.toolCalls.length > 0);
      return answer;
    } catch (error) {
      settled(outcomeOf(error, options.signal));
      overhead.modelAnswered(false);
      throw error;
    }
  }
}

function onFirstPiece({ signal, onText, onActivity }: CallOptions, onFirst: () => void): CallOptions {
  let isFirst = true;
  const noticed = (): void => {
    if (isFirst) onFirst();
    isFirst = false;
  };
  return {
    signal,
    onText: (text) => {
      noticed();
      onText(text);
    },
    onActivity: () => {
      noticed();
      onActivity?.();
    },
  };
}

function count(metrics: RunnerMetrics, model: string, { usage }: ModelAnswer): void {
  metrics.spent(model, 'input', usage.inputTokens);
  metrics.spent(model, 'output', usage.outputTokens);
  metrics.spent(model, 'cache_read', usage.cacheReadTokens);
  metrics.spent(model, 'cache_creation', usage.cacheCreationTokens);
  metrics.spent(model, 'reasoning', usage.reasoningTokens);
}

function answerAttributes({ model, finishReason, usage }: ModelAnswer) {
  return {
    [ATTRIBUTE.responseModel]: model,
    [ATTRIBUTE.finishReasons]: [finishReason],
    [ATTRIBUTE.inputTokens]: usage.inputTokens,
    [ATTRIBUTE.outputTokens]: usage.outputTokens,
    [ATTRIBUTE.cacheReadTokens]: usage.cacheReadTokens,
    [ATTRIBUTE.cacheCreationTokens]: usage.cacheCreationTokens,
  };
}

/** A stable word for how a call failed or why it was given up. */
function outcomeOf(error: unknown, signal: AbortSignal): string {
  const cause: unknown = signal.aborted ? signal.reason : error;
  if (cause instanceof ModelFailure) return cause.kind;
  if (cause instanceof RunStopped) return cause.stopCause;
  return signal.aborted ? 'interrupted' : 'unknown';
}

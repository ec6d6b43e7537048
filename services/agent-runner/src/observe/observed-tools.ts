import type { ToolDescriptor } from '@margay/contracts';
import { Tools, type Said, type ToolInvocation, type ToolOutcome, type WrongIncarnation } from '@margay/engine';
import { ATTRIBUTE, markFailed, withSpan } from '@margay/platform';
import type { RunnerMetrics } from './runner-metrics';
import type { StepOverhead } from './step-overhead';

type ExecuteOptions = Parameters<Tools['execute']>[1];
type Outcome = ToolOutcome | WrongIncarnation;

export interface ToolObservation {
  metrics: RunnerMetrics;
  overhead: StepOverhead;
}

/** Tools, each call of them in a span and measured. Neither arguments nor results get into either. */
export class ObservedTools extends Tools {
  /** Why the outcome of a call may be unknown, by call id. */
  private readonly doubts = new Map<string, string>();

  constructor(
    private readonly tools: Tools,
    private readonly observation: ToolObservation,
  ) {
    super();
  }

  list(): Promise<ToolDescriptor[]> {
    return this.tools.list();
  }

  override expandReferences(said: Said, signal: AbortSignal): Promise<string> {
    return this.tools.expandReferences(said, signal);
  }

  execute(invocation: ToolInvocation, options: ExecuteOptions): Promise<Outcome> {
    const { callId, toolId, effect } = invocation;
    const attributes = {
      [ATTRIBUTE.operation]: 'execute_tool',
      [ATTRIBUTE.toolName]: toolId,
      [ATTRIBUTE.toolCallId]: callId,
      [ATTRIBUTE.toolEffect]: effect,
    };
    return withSpan(`execute_tool ${toolId}`, attributes, async (span) => {
      const outcome = await this.measured(invocation, options);
      if (outcome.status !== 'ok') markFailed(span, outcome.status);
      return outcome;
    });
  }

  /** A call was told to have an unknown outcome; one that was never sent here belongs to an earlier owner of the run. */
  countUnknown(callId: string): void {
    this.observation.metrics.unknownOutcome(this.doubts.get(callId) ?? 'earlier_owner');
    this.doubts.delete(callId);
  }

  private async measured(invocation: ToolInvocation, options: ExecuteOptions): Promise<Outcome> {
    const { metrics, overhead } = this.observation;
    const { toolId: tool, effect } = invocation;
    const startedMs = performance.now();
    let status = 'broken';
    overhead.toolStarted();
    try {
      const outcome = await this.tools.execute(invocation, options);
      status = outcome.status;
      const doubt = doubtOf(outcome);
      if (doubt !== undefined) this.doubts.set(invocation.callId, doubt);
      return outcome;
    } finally {
      overhead.toolEnded();
      metrics.toolCall({ tool, effect, status, seconds: (performance.now() - startedMs) / 1_000 });
    }
  }
}

function doubtOf(outcome: Outcome): string | undefined {
  if (outcome.status === 'wrong_incarnation') return outcome.mayHaveRun ? 'sandbox_lost' : undefined;
  if (outcome.status !== 'unknown') return undefined;
  return outcome.incarnation === undefined ? 'connection_lost' : 'sandbox_restarted';
}

import { setTimeout as sleep } from 'node:timers/promises';
import type { executorPb, runnersPb, ToolDescriptor } from '@margay/contracts';
import { allowAll, runAgent, type Model, type RunOutcome, type RunStopped, type StopCause } from '@margay/engine';
import { ATTRIBUTE, markFailed, runWithTraceparent, withSpan, type GrpcClient, type Logger } from '@margay/platform';
import type { LeaveCause } from '@margay/log';
import { RandomIds, SystemClock } from '@margay/toolbox';
import { GrpcInbox } from '../journal/grpc-inbox';
import { GrpcJournal, type OwnedRun } from '../journal/grpc-journal';
import { ObservedJournal } from '../observe/observed-journal';
import { ObservedModel } from '../observe/observed-model';
import { ObservedTools } from '../observe/observed-tools';
import type { RunnerMetrics } from '../observe/runner-metrics';
import { StepOverhead } from '../observe/step-overhead';
import { ExecutorTools } from '../tools/executor-tools';

export interface HostedRunPorts {
  runners: GrpcClient<typeof runnersPb.RunnersDefinition>;
  executor: GrpcClient<typeof executorPb.ExecutorDefinition>;
  model: Model;
  /** Name of the model's provider in traces and metrics. */
  provider: string;
  metrics: RunnerMetrics;
  descriptors: (signal: AbortSignal) => Promise<ToolDescriptor[]>;
  logger: Logger;
}

/** How long a hand-over may take before the process goes on without it: the session service takes the run back then. */
const RELEASE_MS = 2_000;
const RETURN_AFTER_MS = 1_000;
/** Name of the agent at the top of a run's tree. */
const ROOT_AGENT = 'root';

/** One run at one epoch, driven here until it ends, is stopped, or is handed over. */
export class HostedRun {
  readonly run: OwnedRun;
  readonly ended: Promise<void>;
  private grant: string;
  private readonly inbox = new GrpcInbox();
  private readonly journal: GrpcJournal;
  private settle: () => void = () => undefined;

  constructor(
    private readonly assign: runnersPb.Assign,
    private readonly ports: HostedRunPorts,
  ) {
    const { sessionId, runId, epoch, grant } = assign;
    this.run = { sessionId, runId, epoch };
    this.grant = grant;
    this.ended = new Promise((resolve) => {
      this.settle = resolve;
    });
    this.journal = new GrpcJournal({
      client: ports.runners,
      run: this.run,
      grant: () => this.grant,
      inbox: this.inbox,
      logger: ports.logger,
    });
  }

  renew(grant: string): void {
    this.grant = grant;
  }

  stop(cause: StopCause): void {
    this.inbox.stopFor(cause);
  }

  /** Never rejects. */
  async drive(): Promise<void> {
    const { logger } = this.ports;
    const attributes = {
      [ATTRIBUTE.operation]: 'invoke_agent',
      [ATTRIBUTE.agentName]: ROOT_AGENT,
      [ATTRIBUTE.conversation]: this.run.sessionId,
      [ATTRIBUTE.run]: this.run.runId,
      [ATTRIBUTE.epoch]: this.run.epoch,
    };
    try {
      await runWithTraceparent(this.assign.traceparent, () =>
        withSpan(`invoke_agent ${ROOT_AGENT}`, attributes, async (span) => {
          const end = await this.runAgent();
          if (end.outcome === 'stopped') markFailed(span, end.cause);
          else if (end.error !== undefined) markFailed(span, end.doneReason);
        }),
      );
    } catch (error) {
      logger.error({ err: error }, 'the run failed outside the engine');
      // Not at once: a fault that stays must not make the run spin between queue and runners.
      await sleep(RETURN_AFTER_MS, undefined, { signal: this.inbox.stop }).catch(() => undefined);
      if (this.mayRelease) await this.handOver('failed');
    } finally {
      this.journal.close();
      this.settle();
    }
  }

  /** A run that is not ours any more can't be given back. */
  private get mayRelease(): boolean {
    const { stop } = this.inbox;
    return !stop.aborted || (stop.reason as RunStopped).stopCause === 'drained';
  }

  private async runAgent(): Promise<RunOutcome> {
    const { model, provider, metrics, logger } = this.ports;
    const overhead = new StepOverhead((seconds) => metrics.overhead(seconds));
    const executorTools = this.executorTools();
    const tools = new ObservedTools(executorTools, { metrics, overhead });
    const end = await runAgent({
      model: new ObservedModel(model, { provider, metrics, overhead }),
      tools,
      journal: new ObservedJournal(this.journal, (callId) => tools.countUnknown(callId)),
      inbox: this.inbox,
      approvals: allowAll,
      clock: new SystemClock(),
      ids: new RandomIds(),
    }).finally(() => executorTools.close());
    if (end.outcome === 'stopped' && end.cause === 'drained') await this.handOver('drain');
    logger.info({ outcome: end.outcome }, 'the run has left this runner');
    return end;
  }

  private executorTools(): ExecutorTools {
    const { executor, descriptors, logger } = this.ports;
    return new ExecutorTools({
      client: executor,
      grant: () => this.grant,
      descriptors: () => descriptors(this.inbox.stop),
      onFenced: () => this.inbox.stopFor('fenced'),
      logger,
    });
  }

  private async handOver(cause: LeaveCause): Promise<void> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<void>((resolve) => {
      timer = setTimeout(resolve, RELEASE_MS);
    });
    const released = this.journal
      .release(cause)
      .catch((error: unknown) => this.ports.logger.warn({ err: error }, 'the run could not be handed over'));
    await Promise.race([released, late]);
    clearTimeout(timer);
  }
}

import { setTimeout as sleep } from 'node:timers/promises';
import type { executorPb, runnersPb, ToolDescriptor } from '@margay/contracts';
import { allowAll, runAgent, type Model, type RunOutcome, type RunStopped, type StopCause } from '@margay/engine';
import { isMargayError } from '@margay/errors';
import { ATTRIBUTE, markFailed, runWithTraceparent, withSpan, type GrpcClient } from '@margay/platform';
import type { LeaveCause } from '@margay/log';
import { RandomIds, SystemClock } from '@margay/toolbox';
import { AttachmentPlacer } from '../attachments/attachment-placer';
import { FaultPointJournal } from '../faults/fault-point-journal';
import { FaultPointModel } from '../faults/fault-point-model';
import { FaultPointTools } from '../faults/fault-point-tools';
import { GrpcInbox } from '../journal/grpc-inbox';
import { GrpcJournal, type OwnedRun } from '../journal/grpc-journal';
import { ObservedJournal } from '../observe/observed-journal';
import { ObservedModel } from '../observe/observed-model';
import { ObservedTools } from '../observe/observed-tools';
import type { RunnerMetrics } from '../observe/runner-metrics';
import { StepOverhead } from '../observe/step-overhead';
import { ExecutorTools } from '../tools/executor-tools';
import type { DrivenRun, RunEnd, RunLife } from './run-end';

export interface HostedRunPorts {
  runners: GrpcClient<typeof runnersPb.RunnersDefinition>;
  executor: GrpcClient<typeof executorPb.ExecutorDefinition>;
  model: Model;
  /** Name of the model's provider in traces and metrics. */
  provider: string;
  metrics: RunnerMetrics;
  descriptors: (signal: AbortSignal) => Promise<ToolDescriptor[]>;
  /** Called once the journal of a run is open, or it is known why it can't be opened. */
  onOpenSettled?: (run: OwnedRun) => void;
}

/** How long a hand-over may take before the process goes on without it: the session service takes the run back then. */
const RELEASE_MS = 2_000;
/** A run that failed stays so long before it goes back: a fault that stays must not make it spin between runners. */
const RETURN_FIRST_MS = 1_000;
const RETURN_MAX_MS = 30_000;
/** Name of the agent at the top of a run's tree. */
const ROOT_AGENT = 'root';
const LEFT: RunEnd = { kind: 'left' };

/** One run at one epoch, driven in this process until it ends, is stopped, or is handed over. */
export class HostedRun implements DrivenRun {
  readonly run: OwnedRun;
  private grant: string;
  private readonly inbox = new GrpcInbox();
  private readonly journal: GrpcJournal;
  private readonly attachments: AttachmentPlacer;

  constructor(
    private readonly life: RunLife,
    private readonly ports: HostedRunPorts,
  ) {
    const { sessionId, runId, epoch, grant } = life.assign;
    this.run = { sessionId, runId, epoch };
    this.grant = grant;
    this.journal = new GrpcJournal({
      client: ports.runners,
      run: this.run,
      grant: () => this.grant,
      inbox: this.inbox,
      logger: life.logger,
    });
    const { runners, executor } = ports;
    this.attachments = new AttachmentPlacer({ runners, executor, grant: () => this.grant, logger: life.logger });
  }

  renew(grant: string): void {
    this.grant = grant;
  }

  stop(cause: StopCause): void {
    this.inbox.stopFor(cause);
  }

  async drive(): Promise<RunEnd> {
    const attributes = {
      [ATTRIBUTE.operation]: 'invoke_agent',
      [ATTRIBUTE.agentName]: ROOT_AGENT,
      [ATTRIBUTE.conversation]: this.run.sessionId,
      [ATTRIBUTE.run]: this.run.runId,
      [ATTRIBUTE.epoch]: this.run.epoch,
    };
    try {
      await runWithTraceparent(this.life.assign.traceparent, () =>
        withSpan(`invoke_agent ${ROOT_AGENT}`, attributes, async (span) => {
          const end = await this.runAgent();
          if (end.outcome === 'stopped') markFailed(span, end.cause);
          else if (end.error !== undefined) markFailed(span, end.doneReason);
        }),
      );
      return LEFT;
    } catch (error) {
      return await this.giveBack(error);
    } finally {
      this.journal.close();
    }
  }

  /** What passes by itself is nobody's fault; everything else counts, until the run is given up. */
  private async giveBack(error: unknown): Promise<RunEnd> {
    const { failures, logger } = this.life;
    const cause = isMargayError(error) && error.retryable ? 'unavailable' : 'failed';
    logger.error({ err: error, cause }, 'the run failed outside the engine');
    const delayMs = Math.min(RETURN_FIRST_MS * 2 ** failures, RETURN_MAX_MS);
    await sleep(delayMs, undefined, { signal: this.inbox.stop }).catch(() => undefined);
    if (!this.mayRelease) return LEFT;
    if (await this.handOver(cause)) return { kind: 'returned' };
    const words = error instanceof Error ? error.message : 'something that is no error was thrown';
    // What passes is missing from the beats, and goes back uncounted.
    return this.mayRelease && cause === 'failed' ? { kind: 'lost', detail: `it failed: ${words}` } : LEFT;
  }

  /** A run that is not ours any more can't be given back. */
  private get mayRelease(): boolean {
    const { stop } = this.inbox;
    return !stop.aborted || (stop.reason as RunStopped).stopCause === 'drained';
  }

  private async runAgent(): Promise<RunOutcome> {
    const { model, provider, metrics } = this.ports;
    const overhead = new StepOverhead((seconds) => metrics.overhead(seconds));
    const executorTools = this.executorTools();
    const tools = new ObservedTools(new FaultPointTools(executorTools, this.run), { metrics, overhead });
    const end = await runAgent({
      model: new ObservedModel(new FaultPointModel(model, this.run), { provider, metrics, overhead }),
      tools,
      journal: new ObservedJournal(new FaultPointJournal(this.journal, this.run), {
        onUnknown: (callId) => tools.countUnknown(callId),
        onOpenSettled: () => this.ports.onOpenSettled?.(this.run),
        onOpened: (opened) => this.attachments.learn(opened),
      }),
      inbox: this.inbox,
      approvals: allowAll,
      clock: new SystemClock(),
      ids: new RandomIds(),
    }).finally(() => executorTools.close());
    if (end.outcome === 'stopped' && end.cause === 'drained') await this.handOver('drain');
    this.life.logger.info({ outcome: end.outcome }, 'the run has left this runner');
    return end;
  }

  private executorTools(): ExecutorTools {
    const { executor, descriptors } = this.ports;
    return new ExecutorTools({
      client: executor,
      grant: () => this.grant,
      descriptors: () => descriptors(this.inbox.stop),
      onFenced: () => this.inbox.stopFor('fenced'),
      attachments: this.attachments,
      logger: this.life.logger,
    });
  }

  /** @returns whether the log says so */
  private async handOver(cause: LeaveCause): Promise<boolean> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<false>((resolve) => {
      timer = setTimeout(() => resolve(false), RELEASE_MS);
    });
    const released = this.journal.release(cause).then(
      () => true,
      (error: unknown) => {
        this.life.logger.warn({ err: error }, 'the run could not be handed over');
        return false;
      },
    );
    return Promise.race([released, late]).finally(() => clearTimeout(timer));
  }
}

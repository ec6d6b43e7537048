import { executorPb, runnersPb } from '@margay/contracts';
import { UnavailableError } from '@margay/errors';
import { grpcClient, type KeyRing, type Logger, type ManagementServer } from '@margay/platform';
import { openAiModel } from '@margay/providers';
import type { BeforeApplicationShutdown, OnApplicationBootstrap } from '@nestjs/common';
import { AttachClient } from './attach/attach-client';
import type { AgentRunnerConfig } from './config';
import { RunnerMetrics } from './observe/runner-metrics';
import { RunHost } from './runs/run-host';
import { ToolCatalogue } from './tools/tool-catalogue';

export interface RunnerContext {
  config: AgentRunnerConfig;
  keys: KeyRing;
  logger: Logger;
  management: ManagementServer;
  instance: string;
  version: string;
}

/** The one kind of endpoint there is so far. */
const PROVIDER = 'openai';

/** The agent-runner: takes runs, drives them, hands them back. */
export class RunnerApplication implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private stop?: () => Promise<void>;

  constructor(private readonly context: RunnerContext) {}

  onApplicationBootstrap(): void {
    const { config, keys, logger, management, instance, version } = this.context;
    const runners = grpcClient(runnersPb.RunnersDefinition, config.MARGAY_SESSION_URL, { keys, logger });
    const executor = grpcClient(executorPb.ExecutorDefinition, config.MARGAY_TOOL_EXECUTOR_URL, { keys, logger });
    const catalogue = new ToolCatalogue(executor, logger);
    const model = openAiModel({
      ...(config.OPENAI_BASE_URL === undefined ? {} : { baseUrl: config.OPENAI_BASE_URL }),
      apiKey: config.OPENAI_API_KEY ?? '',
    });
    const slots = config.MARGAY_RUNNER_SLOTS;
    const host = new RunHost({
      slots,
      logger,
      ports: {
        runners,
        executor,
        model,
        provider: PROVIDER,
        metrics: new RunnerMetrics(management.registry),
        descriptors: (signal) => catalogue.list(signal),
      },
      onFreed: () => attach.heartbeat(),
    });
    const attach = new AttachClient({
      client: runners,
      host,
      instance,
      pool: config.MARGAY_POOL,
      slots,
      version,
      heartbeatMs: config.MARGAY_HEARTBEAT_SECONDS * 1_000,
      logger,
    });
    const removeCheck = management.registerCheck('agent-runner.attached', 'ready', () => {
      if (!attach.isAttached)
        throw new UnavailableError('not_attached', 'no session replica answers this runner; check MARGAY_SESSION_URL');
    });
    attach.start();
    this.stop = async () => {
      removeCheck();
      const drained = host.drain();
      // No slot is free from here on: tell it before runs are handed over, or they come back.
      attach.heartbeat();
      await drained;
      attach.drained();
      await attach.close();
      runners.close();
      executor.close();
    };
  }

  async beforeApplicationShutdown(): Promise<void> {
    await this.stop?.();
  }
}

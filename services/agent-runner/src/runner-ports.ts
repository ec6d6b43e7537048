import { executorPb, runnersPb } from '@margay/contracts';
import { grpcClient, type GrpcClient, type KeyRing, type Logger } from '@margay/platform';
import { openAiModel } from '@margay/providers';
import type { Registry } from 'prom-client';
import type { AgentRunnerConfig } from './config';
import { RunnerMetrics } from './observe/runner-metrics';
import type { HostedRunPorts } from './runs/hosted-run';
import { ToolCatalogue } from './tools/tool-catalogue';

/** The one kind of endpoint there is so far. */
const PROVIDER = 'openai';

export interface RunnerSurroundings {
  config: AgentRunnerConfig;
  keys: KeyRing;
  logger: Logger;
  registry: Registry;
}

export interface RunnerPorts {
  ports: HostedRunPorts;
  close(): void;
}

/** Everything that runs need of the world, for a runner and for the process of a single run alike. */
export function runnerPorts({ config, keys, logger, registry }: RunnerSurroundings): RunnerPorts {
  const runners: GrpcClient<typeof runnersPb.RunnersDefinition> = grpcClient(
    runnersPb.RunnersDefinition,
    config.MARGAY_SESSION_URL,
    { keys, logger },
  );
  const executor = grpcClient(executorPb.ExecutorDefinition, config.MARGAY_TOOL_EXECUTOR_URL, { keys, logger });
  const catalogue = new ToolCatalogue(executor, logger);
  const model = openAiModel({
    ...(config.OPENAI_BASE_URL === undefined ? {} : { baseUrl: config.OPENAI_BASE_URL }),
    apiKey: config.OPENAI_API_KEY ?? '',
  });
  return {
    ports: {
      runners,
      executor,
      model,
      provider: PROVIDER,
      metrics: new RunnerMetrics(registry),
      descriptors: (signal) => catalogue.list(signal),
    },
    close: () => {
      runners.close();
      executor.close();
    },
  };
}

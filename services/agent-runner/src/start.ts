import { randomBytes } from 'node:crypto';
import { NestFactory } from '@nestjs/core';
import { KeyRing, nestLogger, parseConfig, type RunningService, type ServiceShared } from '@margay/platform';
import { AgentRunnerModule } from './app.module';
import { AgentRunnerConfig } from './config';

const VERSION = '0.1.0';

/** Starts an agent-runner in this process. */
export async function startAgentRunner(environment: NodeJS.ProcessEnv, shared: ServiceShared): Promise<RunningService> {
  const config = parseConfig(AgentRunnerConfig, environment);
  const instance = randomBytes(8).toString('hex');
  const logger = shared.logger.child({ service: 'agent-runner', instance });
  logger.info({ pool: config.MARGAY_POOL }, 'a runner starts');
  const keys = await KeyRing.load(config.MARGAY_KEYS_DIR, 'agent-runner', shared);
  const module = AgentRunnerModule.with({
    config,
    environment,
    entry: process.argv[1] ?? '',
    keys,
    logger,
    management: shared.management,
    instance,
    version: VERSION,
    isItsTurn: shared.isItsTurn ?? (() => true),
  });
  const application = await NestFactory.createApplicationContext(module, { logger: nestLogger(logger) });
  return { close: () => application.close() };
}

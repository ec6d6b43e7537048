import { randomBytes } from 'node:crypto';
import { NestFactory } from '@nestjs/core';
import { KeyRing, NatsBus, nestLogger, parseConfig, type RunningService, type ServiceShared } from '@margay/platform';
import { SessionModule } from './app.module';
import { SessionConfig } from './config';

/** Starts the session service in this process. */
export async function startSession(environment: NodeJS.ProcessEnv, shared: ServiceShared): Promise<RunningService> {
  const config = parseConfig(SessionConfig, environment);
  const logger = shared.logger.child({ service: 'session' });
  const keys = await KeyRing.load(config.MARGAY_KEYS_DIR, 'session', shared);
  const bus = new NatsBus({ url: config.MARGAY_NATS_URL, name: 'session', logger });
  await bus.start();
  const instance = randomBytes(8).toString('hex');
  const { management, connectionAge, version = '0.0.0' } = shared;
  const context = { config, keys, bus, logger, management, instance, version, ...(connectionAge && { connectionAge }) };
  const module = SessionModule.with(context);
  try {
    const options = { logger: nestLogger(logger), abortOnError: false };
    const application = await NestFactory.createApplicationContext(module, options);
    return {
      async close() {
        await application.close();
        await bus.close();
      },
    };
  } catch (error) {
    await bus.close();
    throw error;
  }
}

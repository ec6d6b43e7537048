import { KeyRing, NatsBus, type RunningService, type ServiceShared } from '@margay/platform';
import { Backends } from './backends';
import { readConfig } from './config';
import { startGatewayApp } from './gateway-app';
import { STREAM_SETTINGS } from './stream/settings';

const SESSION_WAIT_MS = 1_500;

/** Starts the public gateway; resolves once it listens. */
export async function startGateway(
  environment: NodeJS.ProcessEnv,
  shared: ServiceShared,
): Promise<RunningService & { port: number }> {
  const config = readConfig(environment);
  const logger = shared.logger.child({ service: 'gateway' });
  const keys = await KeyRing.load(config.keysDirectory, 'gateway', shared);
  const bus = new NatsBus({ url: config.natsUrl, name: 'gateway', logger });
  await bus.start();
  const addresses = { session: config.sessionUrl, toolExecutor: config.toolExecutorUrl };
  const backends = new Backends(addresses, { keys, logger });
  const gateway = await startGatewayApp({
    listen: config.listen,
    backends,
    keys,
    bus,
    corsOrigins: config.corsOrigins,
    rateLimit: config.rateLimit,
    streams: {
      ...STREAM_SETTINGS,
      maxStreams: config.maxStreams,
      drainMs: config.streamDrainMs,
      heartbeatMs: config.heartbeatMs,
    },
    masterToken: config.masterToken,
    logger,
    registry: shared.management.registry,
  });
  const checks = [
    shared.management.registerCheck('gateway.session', 'ready', () => backends.sessions.waitForReady(SESSION_WAIT_MS)),
    // Without live messages streams are late, but whole.
    shared.management.registerCheck('gateway.nats', 'ready', () =>
      bus.isConnected ? undefined : { degraded: 'NATS is not connected; streams follow the store' },
    ),
  ];
  logger.info({ port: gateway.port }, 'gateway listens');
  return {
    port: gateway.port,
    async close() {
      shared.management.setReady(false);
      for (const remove of checks) remove();
      await gateway.close();
      backends.close();
      await bus.close();
    },
  };
}

import { randomBytes } from 'node:crypto';
import { UnimplementedError } from '@margay/errors';
import {
  armFaultPoints,
  createLogger,
  ManagementServer,
  openTls,
  parseConfig,
  Shutdown,
  startTelemetry,
  type Logger,
} from '@margay/platform';
import { ProcessConfig } from './config';
import { startKeyCheck } from './key-check';
import type { ServiceName } from './service-names';
import type { LoadService } from './starters';
import { startVersionGate } from './version-gate';

export interface ProcessOptions {
  services: readonly ServiceName[];
  starters: Partial<Record<ServiceName, LoadService>>;
  environment: NodeJS.ProcessEnv;
  version: string;
  /** Where log lines go instead of standard output. */
  write?: (line: string) => void;
}

export interface MargayProcess {
  managementPort: number;
  logger: Logger;
  /** Readiness turns false first, then everything closes, newest first, within the limit. */
  stop(reason: string): Promise<void>;
}

/** Starts the named services in this process, around one management port. If one fails, the others are closed again. */
export async function startMargay(options: ProcessOptions): Promise<MargayProcess> {
  const { services, environment, version, write } = options;
  const startedAt = performance.now();
  const config = parseConfig(ProcessConfig, environment);
  const instance = randomBytes(8).toString('hex');
  const logger = createLogger({ level: config.MARGAY_LOG_LEVEL, instance, version, ...(write && { write }) });
  const disarm = armFaultPoints(config.MARGAY_FAULT_POINTS, logger);
  const management = new ManagementServer({ listen: config.MARGAY_MANAGEMENT_LISTEN, logger, version });
  const connectionAge = { maxAgeMs: config.MARGAY_GRPC_CONNECTION_AGE_SECONDS * 1000 };
  const shutdown = new Shutdown({
    logger,
    limitMs: config.MARGAY_SHUTDOWN_LIMIT_SECONDS * 1000,
    onBegin: () => management.setReady(false),
  });
  shutdown.add('fault points', async () => disarm());
  try {
    const telemetry = await startTelemetry({ service: nameOf(services), environment });
    shutdown.add('telemetry', () => telemetry.close());
    const { port: managementPort } = await management.start();
    shutdown.add('management', () => management.close());
    const tls = await openTls(config.MARGAY_TLS_DIR, { management, logger });
    shutdown.add('tls', async () => tls?.close());
    const gate = await startVersionGate({ services, environment, instance, version, management, tls, logger });
    if (gate) shutdown.add('version gate', gate.close);
    const shared = {
      logger,
      management,
      telemetry,
      connectionAge,
      version,
      tls,
      ...(gate && { isItsTurn: gate.isItsTurn }),
    };
    for (const name of services) {
      const start = await loaderOf(name, options.starters)();
      const service = await start(environment, shared);
      shutdown.add(name, () => service.close());
    }
    await startKeyCheck({ services, environment, management });
    management.setReady(true);
    logger.info({ services, managementPort, tookMs: Math.round(performance.now() - startedAt) }, 'margay is ready');
    return { managementPort, logger, stop: (reason) => shutdown.run(reason) };
  } catch (error) {
    await shutdown
      .run('start failed')
      .catch((failure: unknown) => logger.error({ err: failure }, 'shutdown was not clean'));
    throw error;
  }
}

/** The name in traces: the service itself, or what it is together with others. */
const nameOf = (services: readonly ServiceName[]) =>
  services.length === 1 ? `margay-${services[0]}` : 'margay-control';

function loaderOf(name: ServiceName, starters: ProcessOptions['starters']): LoadService {
  const load = starters[name];
  if (!load) throw new UnimplementedError('service_missing', `This build does not contain the service ${name}.`);
  return load;
}

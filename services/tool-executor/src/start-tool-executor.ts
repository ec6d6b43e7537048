import 'reflect-metadata';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { executorPb } from '@margay/contracts';
import { FailedPreconditionError } from '@margay/errors';
import {
  KeyRing,
  parseConfig,
  startGrpcApplication,
  Trust,
  type Logger,
  type RunningService,
  type ServiceShared,
} from '@margay/platform';
import { appModuleOf } from './app.module';
import { ToolExecutorConfig } from './config';
import { ExecutorGrpc } from './executor/executor.grpc';
import { SandboxMetrics } from './metrics';
import { openOutside } from './outside/open-outside';
import { ProcessDriver } from './process-driver/process-driver';
import type { Isolation } from './driver/sandbox-driver';
import { SandboxGrants } from './sandbox/sandbox-grants';
import { SandboxRegistry } from './sandbox/sandbox-registry';

export interface RunningToolExecutor extends RunningService {
  /** How sandboxes are kept apart on this machine. */
  isolation: Isolation;
}

const SERVICE = 'tool-executor';
const SWEEP_MS = 15_000;
/** A sandbox whose executor is gone ends a while after it would have been stopped. */
const IDLE_EXIT_MARGIN_MS = 300_000;

/** Starts tool-executor in this process. Throws when the machine cannot keep sandboxes apart as demanded. */
export async function startToolExecutor(
  environment: NodeJS.ProcessEnv,
  shared: ServiceShared,
): Promise<RunningToolExecutor> {
  const config = parseConfig(ToolExecutorConfig, environment);
  const logger = shared.logger.child({ service: SERVICE });
  const keys = await KeyRing.load(config.MARGAY_KEYS_DIR, SERVICE);
  const driver = await openDriver(config, logger);
  const metrics = new SandboxMetrics(shared.management.registry);
  const outside = await openOutside(config, logger);
  const registry = new SandboxRegistry({
    driver,
    ledger: driver.ledger,
    grants: new SandboxGrants(keys),
    idleStopMs: config.MARGAY_SANDBOX_IDLE_STOP_SECONDS * 1_000,
    logger,
    observer: metrics,
  });
  metrics.show(registry);
  await registry.adopt();
  const application = await startGrpcApplication({
    service: SERVICE,
    module: appModuleOf(registry, keys, logger, outside?.calls),
    listen: config.MARGAY_TOOL_EXECUTOR_LISTEN,
    keysDirectory: config.MARGAY_KEYS_DIR,
    shared,
    serve: (server, nest) => server.add(executorPb.ExecutorDefinition, nest.get(ExecutorGrpc)),
  });
  const stopSweeping = sweepRegularly(registry, logger);
  const stopShowing = show(driver, shared);
  return {
    isolation: driver.isolation,
    close: async () => {
      stopSweeping();
      stopShowing();
      await application.close();
      await Promise.all([registry.close(), outside?.close()]);
      await driver.close();
    },
  };
}

async function openDriver(config: ToolExecutorConfig, logger: Logger): Promise<ProcessDriver> {
  const driver = await ProcessDriver.open({
    home: config.MARGAY_HOME,
    entry: config.MARGAY_SANDBOXD_ENTRY,
    wanted: config.MARGAY_SANDBOX_ISOLATION,
    trust: await trustOf(config.MARGAY_KEYS_DIR),
    memoryBytes: config.MARGAY_SANDBOX_MEMORY_BYTES,
    processes: config.MARGAY_SANDBOX_PROCESSES,
    egressSocket: config.MARGAY_EGRESS_LOCAL_SOCKET,
    faultPoints: config.MARGAY_FAULT_POINTS,
    idleExitMs: config.MARGAY_SANDBOX_IDLE_STOP_SECONDS * 1_000 + IDLE_EXIT_MARGIN_MS,
    logger,
  });
  logger.info({ isolation: driver.isolation }, 'sandbox driver ready');
  if (driver.warning === undefined) return driver;
  logger.warn({ isolation: driver.isolation }, driver.warning);
  refuseOpenDoors(config, driver.isolation);
  return driver;
}

/** The public keys that sandboxes accept grants of. */
async function trustOf(keysDirectory: string): Promise<string> {
  const trust = Trust.parse(JSON.parse(await readFile(path.join(keysDirectory, 'trust.json'), 'utf8')));
  return (trust[SERVICE] ?? []).join('\n');
}

/** Without a real sandbox the platform is for the person at this machine only. */
function refuseOpenDoors(config: ToolExecutorConfig, isolation: Isolation): void {
  const doors = [config.MARGAY_TOOL_EXECUTOR_LISTEN, config.MARGAY_GATEWAY_LISTEN].filter((door) => door !== undefined);
  const open = doors.find((door) => !/^(127\.\d+\.\d+\.\d+|localhost|\[::1\]):\d+$|^unix:/.test(door));
  if (open === undefined) return;
  throw new FailedPreconditionError(
    'sandbox_needs_loopback',
    `With sandbox "${isolation}" everything must listen on loopback, but ${open} does not. Use bubblewrap as root, or 127.0.0.1.`,
  );
}

function sweepRegularly(registry: SandboxRegistry, logger: Logger): () => void {
  const sweep = (): void => {
    registry.sweep().catch((error: unknown) => logger.error({ err: error }, 'idle sandboxes could not be ended'));
  };
  const timer = setInterval(sweep, SWEEP_MS);
  timer.unref();
  return () => clearInterval(timer);
}

/** `/readyz` says in words what is weaker; `/internal/sandbox` names the isolation. */
function show(driver: ProcessDriver, { management }: ServiceShared): () => void {
  const removeCheck = management.registerCheck('sandbox', 'ready', () =>
    driver.warning === undefined ? undefined : { degraded: driver.warning },
  );
  const removeRoute = management.registerRoute('/internal/sandbox', async () => ({
    body: { driver: 'process', isolation: driver.isolation },
  }));
  return () => {
    removeCheck();
    removeRoute();
  };
}

import 'reflect-metadata';
import { executorPb, snapshotsPb, workspacesPb } from '@margay/contracts';
import {
  KeyRing,
  parseConfig,
  startGrpcApplication,
  type Logger,
  type RunningService,
  type ServiceShared,
} from '@margay/platform';
import { appModuleOf } from './app.module';
import { ToolExecutorConfig } from './config';
import { openContent } from './content/open-content';
import { WorkspacesGrpc } from './content/workspaces.grpc';
import { openAnnouncements, type Announcements } from './egress/announcements';
import { EgressCallers } from './egress/egress-callers';
import { EgressTokens } from './egress/egress-tokens';
import { ExecutorGrpc } from './executor/executor.grpc';
import { IndexFollower } from './files/index-follower';
import { openIndex } from './files/open-index';
import { WorkspaceIndex } from './files/workspace-index';
import { SandboxMetrics } from './metrics';
import { openOutside } from './outside/open-outside';
import type { OpenDriver } from './driver/open-driver';
import type { Isolation } from './driver/sandbox-driver';
import { openKubernetes } from './kubernetes-driver/open-kubernetes';
import { openProcess } from './process-driver/open-process';
import { MaskedCalls } from './redaction/masked-calls';
import { TenantMatchers } from './redaction/tenant-matchers';
import { AllPreparations } from './sandbox/all-preparations';
import { GrantKeys } from './sandbox/grant-keys';
import { SandboxGrants } from './sandbox/sandbox-grants';
import { SandboxRegistry } from './sandbox/sandbox-registry';
import { openSnapshots } from './snapshots/open-snapshots';
import { SnapshotsGrpc } from './snapshots/snapshots.grpc';
import { ServiceStore } from './store/service-store';

export interface RunningToolExecutor extends RunningService {
  /** How sandboxes are kept apart on this machine. */
  isolation: Isolation;
}

const SERVICE = 'tool-executor';
const SWEEP_MS = 15_000;
const LOOK_AT_KEYS_MS = 2_000;

/** Starts tool-executor in this process. Throws when the machine cannot keep sandboxes apart as demanded. */
export async function startToolExecutor(
  environment: NodeJS.ProcessEnv,
  shared: ServiceShared,
): Promise<RunningToolExecutor> {
  const config = parseConfig(ToolExecutorConfig, environment);
  const logger = shared.logger.child({ service: SERVICE });
  const store = new ServiceStore(config, { logger, management: shared.management });
  try {
    return await startWith({ config, store, logger, shared });
  } catch (error) {
    await store.close();
    throw error;
  }
}

interface Ground {
  config: ToolExecutorConfig;
  store: ServiceStore;
  logger: Logger;
  shared: ServiceShared;
}

async function startWith({ config, store, logger, shared }: Ground): Promise<RunningToolExecutor> {
  const { management } = shared;
  const keys = await KeyRing.load(config.MARGAY_KEYS_DIR, SERVICE, shared);
  const grants = new SandboxGrants(keys);
  const isKubernetes = config.MARGAY_SANDBOX_DRIVER === 'kubernetes';
  // Sandboxes of this machine have doors of their own, which nobody needs to be told of.
  const announcements = await openAnnouncements(isKubernetes ? config.MARGAY_NATS_URL : undefined, logger);
  const open = await openDriver({ config, store, keys, grants, logger, shared, announcements });
  const { driver, ledger } = open;
  const metrics = new SandboxMetrics(management.registry);
  const outside = await openOutside(config, store, { logger, keys });
  const db = await store.find();
  const indexStore = await openIndex(db);
  const content = await openContent({
    config,
    db,
    objects: await store.findObjects(),
    index: indexStore,
    open,
    logger,
    management,
  });
  const index = new WorkspaceIndex({
    store: indexStore,
    now: () => Date.now(),
    onFailure: (workspaceId, error) => logger.warn({ err: error, workspaceId }, 'a workspace could not be listed'),
  });
  const registry = new SandboxRegistry({
    driver,
    ledger,
    grants,
    idleStopMs: config.MARGAY_SANDBOX_IDLE_STOP_SECONDS * 1_000,
    logger,
    observer: metrics,
    connections: open.connections,
    preparation: new AllPreparations([open.restoring, content?.bringer]),
    onClaimed: (sandbox) => follower.follow(sandbox),
  });
  const follower = new IndexFollower({
    index,
    tokenFor: (sandbox) => registry.ownerToken(sandbox),
    onSpace: ({ ref }, percent) => {
      open
        .noteSpace?.(ref, percent)
        .catch((error: unknown) => logger.warn({ err: error }, 'a volume was left as it is'));
    },
    isLive: (sandbox) => registry.find(sandbox.ref.tenantId, sandbox.ref.sessionId) === sandbox,
    now: () => Date.now(),
    logger,
  });
  metrics.show(registry);
  if (open.restoring)
    open.restoring.onRestored = (seconds, className) => metrics.claimed(seconds, 'restore', className);
  await registry.adopt();
  const workspaces = new WorkspacesGrpc(content?.serve(registry));
  const archives = openSnapshots({ config, db, open, registry, logger });
  const callers = open.findCaller && new EgressCallers(new EgressTokens(keys), open.findCaller);
  const { MARGAY_SESSION_URL: session } = config;
  const matchers = session === undefined ? undefined : TenantMatchers.open(session, keys, logger);
  const application = await startGrpcApplication({
    service: SERVICE,
    module: appModuleOf({
      registry,
      keys,
      logger,
      outside,
      callers,
      masked: matchers && new MaskedCalls(matchers, management.registry, logger),
      index,
      forgetPart: content?.forgetPart,
    }),
    listen: config.MARGAY_TOOL_EXECUTOR_LISTEN,
    keysDirectory: config.MARGAY_KEYS_DIR,
    shared,
    serve: (server, nest) =>
      server
        .add(executorPb.ExecutorDefinition, nest.get(ExecutorGrpc))
        .add(workspacesPb.WorkspacesDefinition, workspaces)
        .add(snapshotsPb.SnapshotsDefinition, new SnapshotsGrpc(archives?.workspaces)),
  });
  const stopSweeping = sweepRegularly(registry, logger);
  const stopLooking = lookAtKeys(keys);
  const stopShowing = show(open, shared);
  return {
    isolation: driver.isolation,
    close: async () => {
      stopSweeping();
      stopLooking();
      stopShowing();
      await application.close();
      await archives?.close();
      follower.close();
      await Promise.all([registry.close(), outside?.close()]);
      await content?.close();
      matchers?.close();
      await open.close();
      await announcements.close();
      await store.close();
    },
  };
}

interface DriverParts extends Ground {
  keys: KeyRing;
  grants: SandboxGrants;
  announcements: Announcements;
}

async function openDriver({ announcements, ...parts }: DriverParts): Promise<OpenDriver> {
  const { config, store, keys, grants, logger, shared } = parts;
  const { management } = shared;
  const grantKeys = new GrantKeys(keys);
  const open =
    config.MARGAY_SANDBOX_DRIVER === 'kubernetes'
      ? await openKubernetes({
          config,
          store,
          grantKeys,
          grants,
          logger,
          management,
          tokens: new EgressTokens(keys),
          onEnd: (sandboxId) => announcements.ended(sandboxId),
        })
      : await openProcess(config, grantKeys, logger);
  const { isolation } = open.driver;
  logger.info({ isolation }, 'sandbox driver ready');
  if (open.warning !== undefined) logger.warn({ isolation }, open.warning);
  return open;
}

function sweepRegularly(registry: SandboxRegistry, logger: Logger): () => void {
  const sweep = (): void => {
    registry.sweep().catch((error: unknown) => logger.error({ err: error }, 'idle sandboxes could not be ended'));
  };
  const timer = setInterval(sweep, SWEEP_MS);
  timer.unref();
  return () => clearInterval(timer);
}

/** Sandboxes are made with the keys of their time, also while nothing is signed. */
function lookAtKeys(keys: KeyRing): () => void {
  const timer = setInterval(() => void keys.refresh(), LOOK_AT_KEYS_MS);
  timer.unref();
  return () => clearInterval(timer);
}

/** `/readyz` says in words what is weaker; `/internal/sandbox` names the isolation. */
function show({ driver, name, warning }: OpenDriver, { management }: ServiceShared): () => void {
  const removeCheck = management.registerCheck('sandbox', 'ready', () =>
    warning === undefined ? undefined : { degraded: warning },
  );
  const removeRoute = management.registerRoute('/internal/sandbox', async () => ({
    body: { driver: name, isolation: driver.isolation },
  }));
  return () => {
    removeCheck();
    removeRoute();
  };
}

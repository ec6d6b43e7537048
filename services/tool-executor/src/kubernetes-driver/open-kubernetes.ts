import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { InvalidArgumentError } from '@margay/errors';
import { LeasedSweep, LeaseRepository, type Logger, type ServiceShared } from '@margay/platform';
import type { Db } from 'mongodb';
import type { ToolExecutorConfig } from '../config';
import type { OpenDriver } from '../driver/open-driver';
import type { FindCaller } from '../egress/egress-callers';
import type { EgressTokens } from '../egress/egress-tokens';
import { ArchivedInventory } from '../snapshots/archived-inventory';
import { SandboxConnection } from '../sandbox/sandbox-connection';
import { SandboxConnections } from '../sandbox/sandbox-connections';
import type { GrantKeys } from '../sandbox/grant-keys';
import type { SandboxGrants } from '../sandbox/sandbox-grants';
import type { ServiceStore } from '../store/service-store';
import { readClasses } from './classes';
import { Collection } from './collection';
import { Cordons } from './cordons';
import type { Endings } from './endings';
import { EpochRepository } from './epoch.repository';
import { KubernetesApi } from './kubernetes-api';
import { KubernetesDriver } from './kubernetes-driver';
import { KubernetesInventory } from './kubernetes-inventory';
import { KubernetesMetrics } from './kubernetes-metrics';
import { selectorOf } from './labels';
import { LikelyClaims } from './likely-claims';
import type { NodeWatch } from './node-watch';
import { openKeeping } from './open-keeping';
import { openNetwork } from './open-network';
import { proxyAddress, type ProxyAddress } from './proxy-address';
import { PoolSettings } from './pool-settings';
import { poolTarget, TARGET_WINDOW_MS } from './pool-target';
import type { SandboxContext } from './sandbox-context';
import { SandboxRepository } from './sandbox.repository';
import { isFinal, type SandboxRow } from './sandbox-row';
import { VolumeGrowth } from './volume-growth';
import type { Probe } from './warm-pool';
import { WaitingRepository } from './waiting.repository';
import { WorkspaceRepository } from './workspace.repository';

export interface OpenKubernetesOptions {
  config: ToolExecutorConfig;
  store: Pick<ServiceStore, 'find' | 'findObjects'>;
  grantKeys: GrantKeys;
  grants: SandboxGrants;
  tokens: EgressTokens;
  logger: Logger;
  management: ServiceShared['management'];
  /** Told of sandboxes that come to their end. */
  onEnd?: (sandboxId: string) => void;
}

const ARCHIVE_LOOK_MS = 15_000;
const ARCHIVES_COLLECT_MS = 600_000;

/** The driver `kubernetes` with its records, and what looks after both while this replica holds the leases. */
export async function openKubernetes(options: OpenKubernetesOptions): Promise<OpenDriver> {
  const { config, logger, management } = options;
  const settings = settingsOf(options, await proxyAddress(config.MARGAY_EGRESS_ADDRESS));
  const metrics = new KubernetesMetrics(management.registry);
  const db = demanded(await options.store.find(), 'MARGAY_MONGODB_URL');
  const { sandboxes, workspaces, epochs, waiting, leases, rows } = await openRecords(db, options.onEnd);
  const api = await KubernetesApi.open({
    kubeconfigFile: config.MARGAY_KUBECONFIG,
    onWrite: metrics.wrote,
  });
  const pods = api.watchPods(settings.namespaces, selectorOf(settings.install));
  const context: SandboxContext = { api, pods, sandboxes, workspaces, waiting, settings, logger };
  const network = config.MARGAY_MULTI_TENANT ? openNetwork(context, { config, db, management }) : undefined;
  if (network) context.gate = network.gate;
  const driver = new KubernetesDriver(context, epochs, probeWith(options.grants));
  const { grants } = options;
  const keeping = await openKeeping(context, driver, {
    db,
    maxBytes: config.MARGAY_SNAPSHOT_MAX_BYTES,
    objects: await options.store.findObjects(),
    grants,
    management,
    logger,
  });
  const nodes = config.MARGAY_WATCH_NODES ? openCordons(context, driver.endings) : undefined;
  await Promise.all([pods.start(), nodes?.start()]);
  if (pods.failure !== undefined) logger.warn({ err: pods.failure }, 'the Kubernetes API does not answer yet');
  const sweeps = sweepsOf(context, driver, { config, leases, metrics, keeping, network });
  for (const sweep of sweeps) sweep.start();
  const connections = new SandboxConnections((connection) => greetAsNobody(connection, grants));
  const growth = new VolumeGrowth(context);
  const likely = new LikelyClaims(context, connections);
  likely.start();
  const removeCheck = management.registerCheck('kubernetes', 'ready', () =>
    pods.failure === undefined ? undefined : { degraded: 'the Kubernetes API does not answer; new sandboxes wait' },
  );
  return {
    driver,
    ledger: driver.ledger,
    connections,
    inventory: new ArchivedInventory(new KubernetesInventory(rows, api), keeping.snapshots),
    snapshots: keeping.snapshots,
    restoring: keeping.preparation,
    dropVolume: ({ namespace, pvcName: name, pvcUid: uid }) => api.deleteVolume({ namespace, name, uid }),
    noteSpace: (ref, percent) => growth.consider(ref, percent),
    name: 'kubernetes',
    warning: undefined,
    findCaller: findCallerIn(sandboxes, workspaces),
    close: async () => {
      removeCheck();
      network?.close();
      await nodes?.stop();
      await likely.stop();
      await Promise.all(sweeps.map((sweep) => sweep.stop()));
      await pods.stop();
    },
  };
}

function openCordons(context: SandboxContext, endings: Endings): NodeWatch {
  const { api, logger } = context;
  const nodes = api.watchNodes((error) => logger.warn({ err: error }, 'nodes cannot be watched for cordons'));
  new Cordons(context, { nodes, endings });
  return nodes;
}

async function openRecords(db: Db, onEnd: OpenKubernetesOptions['onEnd']) {
  const rows = db.collection<SandboxRow>('sandboxes');
  const sandboxes = new SandboxRepository(rows, onEnd);
  const workspaces = new WorkspaceRepository(db.collection('workspaces'));
  const epochs = new EpochRepository(db.collection('sandboxEpochs'));
  const waiting = new WaitingRepository(db.collection('sandboxQueue'));
  for (const repository of [sandboxes, workspaces, epochs, waiting]) await repository.createIndexes();
  return {
    rows,
    sandboxes,
    workspaces,
    epochs,
    waiting,
    leases: new LeaseRepository(db.collection('leases'), randomUUID()),
  };
}

function settingsOf({ config, grantKeys, tokens }: OpenKubernetesOptions, proxy?: ProxyAddress): PoolSettings {
  const { MARGAY_EGRESS_CA_FILE: file } = config;
  const authority = file === undefined ? undefined : readFileSync(file, 'utf8');
  return new PoolSettings({
    namespace: config.MARGAY_WORKSPACES_NAMESPACE,
    tenantsOf: config.MARGAY_WORKSPACES_EXTRA_NAMESPACES,
    classes: readClasses(config.MARGAY_SANDBOX_CLASSES_FILE),
    // Replaced while the service runs: each sandbox is made with those of its time.
    get grantKid() {
      return grantKeys.kid;
    },
    tenantMax: config.MARGAY_SANDBOX_TENANT_MAX,
    pod: {
      install: config.MARGAY_INSTALL_ID,
      image: demanded(config.MARGAY_SANDBOX_IMAGE, 'MARGAY_SANDBOX_IMAGE'),
      pullPolicy: config.MARGAY_SANDBOX_PULL_POLICY,
      pullSecrets: config.MARGAY_SANDBOX_PULL_SECRETS,
      get trust() {
        return grantKeys.trust;
      },
      ...(authority !== undefined && { authority }),
      ...(proxy && { proxy, proxyTokenOf: (sandboxId: string) => tokens.tokenOf(sandboxId) }),
    },
  });
}

/** The session of the sandbox that has this name and address now. */
function findCallerIn(sandboxes: SandboxRepository, workspaces: WorkspaceRepository): FindCaller {
  return async (sandboxId, sourceAddress) => {
    const row = await sandboxes.find(sandboxId);
    if (!row || isFinal(row) || row.ip !== sourceAddress || row.sessionId === undefined) return undefined;
    const { tenantId, sessionId, workspaceId } = row;
    const projectId = workspaceId === undefined ? undefined : await workspaces.findProject(tenantId, workspaceId);
    const project = projectId === undefined ? {} : { projectId };
    return { tenantId, sandboxId, sessionId, sandboxClass: row.class, ...project };
  };
}

/** A sandbox that serves nobody answers, and stays nobody's. */
async function greetAsNobody(connection: SandboxConnection, grants: SandboxGrants): Promise<void> {
  const nobody = { tenantId: 'system', storeGeneration: 0, epoch: 0 };
  await connection.hello(await grants.token({ sandboxId: connection.audience, ...nobody }));
}

function probeWith(grants: SandboxGrants): Probe {
  return async (endpoint) => {
    const connection = await SandboxConnection.open(endpoint);
    try {
      await greetAsNobody(connection, grants);
      const { tlsFingerprint, tlsCertificate } = connection;
      return { tlsFingerprint, tlsCertificate };
    } finally {
      connection.close();
    }
  };
}

interface SweepParts {
  config: ToolExecutorConfig;
  leases: LeaseRepository;
  metrics: KubernetesMetrics;
  keeping: Awaited<ReturnType<typeof openKeeping>>;
  network: ReturnType<typeof openNetwork> | undefined;
}

function sweepsOf(
  context: SandboxContext,
  driver: KubernetesDriver,
  { config, leases, metrics, keeping, network }: SweepParts,
): LeasedSweep[] {
  const { settings, sandboxes, logger } = context;
  const idleMs = config.MARGAY_SANDBOX_IDLE_STOP_SECONDS * 1_000;
  const { archives, store } = keeping;
  const suspend = archives.suspend.bind(archives);
  const unpairedMs = config.MARGAY_SANDBOX_UNPAIRED_SECONDS * 1_000;
  const onRemoved = metrics.removed;
  const collection = new Collection(context, driver.endings, { idleMs, unpairedMs, onRemoved, suspend });
  const collect = { name: 'sandbox-gc', everyMs: config.MARGAY_SANDBOX_COLLECT_SECONDS * 1_000 };
  const pools = settings.pools.map((pool) => ({
    name: `pool/${pool.name}`,
    everyMs: config.MARGAY_SANDBOX_POOL_SECONDS * 1_000,
    sweep: async () => {
      const { namespace } = pool;
      const now = Date.now();
      const recent = await sandboxes.listRecent(pool.name, new Date(now - TARGET_WINDOW_MS));
      // Where nobody's are made any more, none wait.
      const isUsed = settings.tenantsOf(namespace)?.length !== 0;
      const target = isUsed ? poolTarget(recent, settings.class(pool.class), now) : 0;
      const specHash = settings.specHashOf(pool.class);
      const state = await driver.ensurePool({ namespace, class: pool.class, specHash, target });
      metrics.pooled(settings.tenantsOf(namespace) ? pool.name : pool.class, state);
      return 0;
    },
  }));
  const archive = { name: 'workspace-archives', everyMs: ARCHIVE_LOOK_MS, sweep: () => archives.sweep() };
  const broken = { name: 'archives-gc', everyMs: ARCHIVES_COLLECT_MS, sweep: () => store.collect() };
  const works = [
    { ...collect, sweep: () => collection.sweep() },
    archive,
    broken,
    ...pools,
    ...(network ? [network.work] : []),
  ];
  return works.map((work) => new LeasedSweep(work, { leases, logger }));
}

function demanded<T>(value: T | undefined, name: string): T {
  if (value !== undefined) return value;
  throw new InvalidArgumentError('bad_environment', `Cannot start: the sandbox driver "kubernetes" needs ${name}.`);
}

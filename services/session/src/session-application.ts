import {
  accessPb,
  egressPb,
  executorPb,
  instancesPb,
  runnersPb,
  secretsPb,
  sessionsPb,
  subjects,
  snapshotsPb,
  workspacesPb,
} from '@margay/contracts';
import {
  GrpcServer,
  grpcClient,
  type ConnectionAge,
  type KeyRing,
  type Logger,
  type ManagementServer,
  type MongoConnection,
  type NatsBus,
  storeGenerationOf,
  TenantLabel,
  WorkWatch,
} from '@margay/platform';
import { openObjects } from '@margay/platform/files';
import type { OnApplicationBootstrap, BeforeApplicationShutdown } from '@nestjs/common';
import { UnavailableError } from '@margay/errors';
import { accessHandlers } from './access/access.grpc';
import { AccessService } from './access/access.service';
import { TenantClasses } from './access/tenant-classes';
import { TenantsService } from './access/tenants.service';
import { AttachmentsService } from './attachments/attachments.service';
import { BindingService } from './binding/binding.service';
import { passingFault } from './commits/commit-faults';
import { publishCommit } from './commits/live';
import { SessionLog } from './commits/session-log';
import { SystemClock } from './commits/system-clock';
import type { SessionConfig } from './config';
import { Dispatch } from './dispatch/dispatch';
import { RunnerPools } from './dispatch/runner-pools';
import { RunGrants } from './dispatch/run-grants';
import { DenialsService } from './egress-policies/denials.service';
import { EgressPoliciesService } from './egress-policies/egress-policies.service';
import { egressHandlers } from './egress-policies/egress.grpc';
import { EffectsService } from './effects/effects.service';
import { JournalRegistry } from './journal/journal-registry';
import { runnersHandlers } from './journal/runners.grpc';
import { registerManagement } from './management';
import { SessionMetrics } from './metrics';
import { FilesService } from './projects/files.service';
import { ManagedProjects } from './projects/managed-projects';
import { ModelsService } from './projects/models.service';
import { ProjectsService } from './projects/projects.service';
import { Repositories } from './projects/repositories';
import { SandboxClasses } from './projects/sandbox-classes';
import { SandboxIsolation } from './projects/sandbox-isolation';
import { worktreeSweep } from './projects/worktree-sweep';
import { WorktreesService } from './projects/worktrees.service';
import { questionSweep } from './questions/question-expiry';
import { QuestionsService } from './questions/questions.service';
import { openSecrets } from './secrets/open-secrets';
import { RecoveryService } from './sessions/recovery.service';
import { SessionsService } from './sessions/sessions.service';
import { sessionsHandlers } from './sessions/sessions.grpc';
import { ForkService } from './sessions/fork.service';
import { ClockGuard } from './store/clock-guard';
import { checkClock } from './store/store-clock';
import { openCollections } from './store/collections';
import { storeHandlers } from './store/store-handlers';
import { Upkeep } from './upkeep/upkeep';
import { InstanceWatch } from './versions/instance-watch';
import { instancesHandlers } from './versions/instances.grpc';
import { ForkedFiles } from './workspaces/forked-files';
import { ProjectWorkspaces } from './workspaces/project-workspaces';
import { retirementSweep } from './workspaces/retirement-sweep';

export interface SessionContext {
  config: SessionConfig;
  keys: KeyRing;
  bus: NatsBus;
  logger: Logger;
  management: ManagementServer;
  /** Random per process start. */
  instance: string;
  /** Of this build. */
  version: string;
  /** Of its gRPC server. */
  connectionAge?: ConnectionAge;
}

const STORE_WAIT_MS = 60_000;
const CLOSE_GRACE_MS = 2_000;

/** The session service: everything it is made of, in the order in which it starts and the reverse of it. */
export class SessionApplication implements OnApplicationBootstrap, BeforeApplicationShutdown {
  private stop?: () => Promise<void>;

  constructor(
    private readonly context: SessionContext,
    private readonly mongo: MongoConnection,
  ) {}

  async onApplicationBootstrap(): Promise<void> {
    const { config, keys, bus, logger, management, instance, version } = this.context;
    await this.mongo.ready(STORE_WAIT_MS);
    const metrics = new SessionMetrics(management.registry, new TenantLabel(config.MARGAY_METRICS_TENANT_LABEL));
    const executor = grpcClient(executorPb.ExecutorDefinition, config.MARGAY_TOOL_EXECUTOR_URL, { keys, logger });
    const workspacesClient = grpcClient(workspacesPb.WorkspacesDefinition, config.MARGAY_TOOL_EXECUTOR_URL, {
      keys,
      logger,
    });
    const snapshotsClient = grpcClient(snapshotsPb.SnapshotsDefinition, config.MARGAY_TOOL_EXECUTOR_URL, {
      keys,
      logger,
    });

    const { db } = this.mongo.connection;
    if (!db) throw new UnavailableError('store_unavailable', 'The document store is not connected.');
    const objects = await openObjects(config);
    const { store, blobs, leases, rows } = await openCollections(db, { instance, version, objects });

    const access = new AccessService(rows.access, bus, config.MARGAY_CELL);
    await access.bootstrap(config.MARGAY_BOOTSTRAP_KEY, config.MARGAY_BOOTSTRAP_KEY_SECONDS);

    const clockGuard = new ClockGuard({
      check: () => this.checkClock(),
      // Runners and runs go on at replicas whose clocks are right.
      onOff: () => {
        dispatch.dispatcher.hangUp();
        void journals.handOver();
      },
      logger,
    });
    const refusal = () => clockGuard.refusal;
    const log = new SessionLog(store, blobs, metrics.commitObserver(), logger, refusal, () => secrets.masking);
    const secrets = await openSecrets({ kekFile: config.MARGAY_KEK_FILE, rows, log, bus, logger, hits: metrics });
    const egress = egressHandlers({
      policies: new EgressPoliciesService({
        rows: rows.egressPolicies,
        bus,
        logger,
        maxMode: config.MARGAY_EGRESS_MAX_MODE,
      }),
      denials: new DenialsService(log),
    });
    const workspaces = new ProjectWorkspaces(workspacesClient);
    const tenantClasses = new TenantClasses((tenantId) => rows.access.findTenant(tenantId));
    const managed = new ManagedProjects(rows.projects, workspaces, logger, (tenantId, name) =>
      classes.require(tenantId, name),
    );
    const repositories = new Repositories(executor, logger);
    const projects = new ProjectsService(config, { managed, worktrees: rows.worktrees, repositories });
    const models = new ModelsService(config, logger);
    const isolation = new SandboxIsolation(executor, logger);
    const classes = new SandboxClasses({ tenants: tenantClasses, projects, offered: isolation });
    const generation = storeGenerationOf(config.MARGAY_MONGODB_DATABASE);
    const grants = new RunGrants(keys, projects, generation);
    const effects = new EffectsService({ store, ...rows, executor, logger });
    const pools = new RunnerPools(config.MARGAY_POOL, config.MARGAY_RUNNER_POOLS);
    const dispatch = new Dispatch({ config, log, effects, grants, bus, leases, rows, metrics, pools, logger });
    const journals = new JournalRegistry(store, logger);
    const runPorts = {
      log,
      projects,
      models,
      isolation,
      classes,
      pools,
      stepBudget: config.MARGAY_STEP_BUDGET,
    };
    const attachments = new AttachmentsService({
      log,
      blobs,
      rows: rows.attachments,
      refersTo: (tenantId, blobId, sessionId) => store.refersTo(tenantId, blobId, sessionId),
    });
    const files = new FilesService({ log, projects, attachments, executor });
    const worktrees = new WorktreesService({ ...rows, log, projects, executor });
    const binding = new BindingService({ ...runPorts, effects });
    const sessions = new SessionsService({ ...runPorts, effects, tags: rows.tags, attachments });
    const recovery = new RecoveryService(runPorts);
    const questions = new QuestionsService({ ...runPorts, questions: rows.questions });
    const forkedFiles = new ForkedFiles(snapshotsClient, logger);
    const fork = new ForkService({ log, effects, ...rows, files: forkedFiles, logger, clock: new SystemClock() });
    const upkeep = new Upkeep(
      {
        db,
        store,
        blobs,
        log,
        effects,
        ...rows,
        forkService: fork,
        leases,
        logger,
        onEffectsLag: (seconds) => metrics.effectsLagged(seconds),
        onRepaired: (sweep, count) => metrics.janitorRepairs.inc({ sweep }, count),
      },
      [
        questionSweep({ log, runs: rows.runs, logger }),
        dispatch.reminders.sweep,
        secrets.sweep,
        worktreeSweep({ rows: rows.worktrees, worktrees, logger }),
        retirementSweep({ projects: rows.projects, workspaces }),
      ],
    );

    const effectsUnderWay = new WorkWatch();
    log.onCommitted((document) => {
      passingFault('session.before-publish', document, () => publishCommit(bus, document));
      passingFault('session.before-effects', document, () => void effectsUnderWay.track(effects.apply(document)));
      metrics.countEnded(document);
    });
    await clockGuard.start();
    const versions = new InstanceWatch({ instances: rows.instances, version, logger });
    await versions.start();
    const server = new GrpcServer({
      listen: config.MARGAY_SESSION_LISTEN,
      keys,
      logger,
      refusal,
      ...this.context.connectionAge,
    })
      .add(
        sessionsPb.SessionsDefinition,
        storeHandlers(
          sessionsHandlers({
            sessions,
            recovery,
            questions,
            fork,
            log,
            store,
            blobs,
            rows: rows.sessions,
            projects,
            managed,
            models,
            positions: dispatch.positions,
            attachments,
            files,
            worktrees,
            binding,
          }),
        ),
      )
      .add(accessPb.AccessDefinition, storeHandlers(accessHandlers(access, new TenantsService(access, isolation))))
      .add(secretsPb.SecretsDefinition, storeHandlers(secrets.handlers))
      .add(egressPb.EgressDefinition, storeHandlers(egress))
      .add(instancesPb.InstancesDefinition, storeHandlers(instancesHandlers({ ...rows, watch: versions, generation })))
      .add(
        runnersPb.RunnersDefinition,
        runnersHandlers({ log, bus, ...dispatch.parts, runners: rows.runners, grants, journals, attachments, logger }),
      );
    await server.start();
    const removeChecks = registerManagement({
      management,
      metrics,
      bus,
      runs: rows.runs,
      runners: rows.runners,
      dispatcher: dispatch.dispatcher,
      effects: effectsUnderWay,
      pools,
      secretsFault: () => secrets.fault(),
      pingStore: () => this.mongo.ping(),
      checkClock: () => this.checkClock(),
      checkVersions: () => versions.checkReady(),
      db,
    });
    dispatch.start();
    journals.start();
    upkeep.start();
    isolation.start();
    const ignoreTenants = bus.subscribe(subjects.config('tenants'), () => tenantClasses.forget());

    this.stop = async () => {
      removeChecks();
      ignoreTenants();
      clockGuard.stop();
      versions.stop();
      for (const part of [secrets, isolation, dispatch]) part.stop();
      const closed = server.close(CLOSE_GRACE_MS);
      // Who looks for another replica finds that this one takes nothing new.
      dispatch.dispatcher.hangUp();
      void journals.handOver();
      await closed;
      journals.stop();
      log.close();
      await within(CLOSE_GRACE_MS, dispatch.leave());
      await within(CLOSE_GRACE_MS, Promise.all([upkeep.stop(), effects.idle()]));
      executor.close();
      workspacesClient.close();
      snapshotsClient.close();
      objects?.close();
    };
  }

  async beforeApplicationShutdown(): Promise<void> {
    await this.stop?.();
  }

  private async checkClock(): Promise<void> {
    const { db } = this.mongo.connection;
    // Without a connection the check of the store says so.
    if (db) await checkClock(db);
  }
}

/** Waits for the work, but no longer than this. */
async function within(limitMs: number, work: Promise<unknown>): Promise<void> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<void>((resolve) => {
    timer = setTimeout(resolve, limitMs);
  });
  await Promise.race([work, late]);
  clearTimeout(timer);
}

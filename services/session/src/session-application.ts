import { accessPb, executorPb, runnersPb, sessionsPb } from '@margay/contracts';
import {
  GrpcServer,
  grpcClient,
  type ConnectionAge,
  type KeyRing,
  type Logger,
  type ManagementServer,
  type MongoConnection,
  type NatsBus,
  WorkWatch,
} from '@margay/platform';
import type { OnApplicationBootstrap, BeforeApplicationShutdown } from '@nestjs/common';
import { UnavailableError } from '@margay/errors';
import { commitKey } from '@margay/log';
import { accessHandlers } from './access/access.grpc';
import { AccessRepository } from './access/access.repository';
import { AccessService } from './access/access.service';
import { passingFault } from './commits/commit-faults';
import { publishCommit } from './commits/live';
import { MongoBlobStore } from './commits/mongo-blob-store';
import { MongoCommitStore } from './commits/mongo-commit-store';
import { SessionLog } from './commits/session-log';
import { SystemClock } from './commits/system-clock';
import type { SessionConfig } from './config';
import { Dispatcher } from './dispatch/dispatcher';
import { RunGrants } from './dispatch/run-grants';
import { QueuePositions } from './dispatch/queue-positions';
import { QueueReminders } from './dispatch/queue-reminders';
import { ReplicaRepository } from './dispatch/replica.repository';
import { RunQueue } from './dispatch/run-queue';
import { RunRepository } from './dispatch/run.repository';
import { RunnerWatch } from './dispatch/runner-watch';
import { RunnerRepository } from './dispatch/runner.repository';
import { TenantLimits } from './dispatch/tenant-limits';
import { EffectsService } from './effects/effects.service';
import { SessionRepository } from './effects/session.repository';
import { JournalRegistry } from './journal/journal-registry';
import { runnersHandlers } from './journal/runners.grpc';
import { LeaseRepository } from './leases/lease.repository';
import { registerManagement } from './management';
import { SessionMetrics } from './metrics';
import { ModelsService } from './projects/models.service';
import { ProjectsService } from './projects/projects.service';
import { SandboxIsolation } from './projects/sandbox-isolation';
import { questionSweep } from './questions/question-expiry';
import { QuestionRepository } from './questions/question.repository';
import { QuestionsService } from './questions/questions.service';
import { RecoveryService } from './sessions/recovery.service';
import { SessionsService } from './sessions/sessions.service';
import { sessionsHandlers } from './sessions/sessions.grpc';
import { TagRepository } from './sessions/tag.repository';
import { ForkRepository } from './sessions/fork.repository';
import { ForkService } from './sessions/fork.service';
import { ClockGuard } from './store/clock-guard';
import { checkClock } from './store/store-clock';
import { storeHandlers } from './store/store-handlers';
import { Upkeep } from './upkeep/upkeep';

export interface SessionContext {
  config: SessionConfig;
  keys: KeyRing;
  bus: NatsBus;
  logger: Logger;
  management: ManagementServer;
  /** Random per process start. */
  instance: string;
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
    const { config, keys, bus, logger, management, instance } = this.context;
    await this.mongo.ready(STORE_WAIT_MS);
    const metrics = new SessionMetrics(management.registry);
    const executor = grpcClient(executorPb.ExecutorDefinition, config.MARGAY_TOOL_EXECUTOR_URL, { keys, logger });

    const { db } = this.mongo.connection;
    if (!db) throw new UnavailableError('store_unavailable', 'The document store is not connected.');
    const blobs = new MongoBlobStore(db);
    const store = new MongoCommitStore(db.collection('commits'), db.collection('sessions'), blobs);
    const sessionRows = new SessionRepository(db.collection('sessions'));
    const runRows = new RunRepository(db.collection('runs'));
    const runnerRows = new RunnerRepository(db.collection('runners'), instance);
    const replicaRows = new ReplicaRepository(db.collection('instances'), instance);
    const leases = new LeaseRepository(db.collection('leases'), instance);
    const accessRows = new AccessRepository(db.collection('tenants'), db.collection('members'), db.collection('keys'));
    const tags = new TagRepository(db.collection('tags'));
    const forks = new ForkRepository(db.collection('forks'));
    const questionRows = new QuestionRepository(db.collection('questions'));
    for (const owner of [store, blobs, sessionRows, runRows, accessRows, tags, forks]) await owner.createIndexes();

    const access = new AccessService(accessRows, bus, config.MARGAY_CELL);
    await access.bootstrap(config.MARGAY_BOOTSTRAP_KEY);

    const clockGuard = new ClockGuard({
      check: () => this.checkClock(),
      // Runners and runs go on at replicas whose clocks are right.
      onOff: () => {
        dispatcher.hangUp();
        void journals.handOver();
      },
      logger,
    });
    const refusal = () => clockGuard.refusal;
    const log = new SessionLog(store, blobs, metrics.commitObserver(), logger, refusal);
    const projects = new ProjectsService(config);
    const models = new ModelsService(config, logger);
    const isolation = new SandboxIsolation(executor, logger);
    const grants = new RunGrants(keys, projects);
    const effects = new EffectsService({
      store,
      sessions: sessionRows,
      runs: runRows,
      questions: questionRows,
      executor,
      logger,
    });
    const watch = new RunnerWatch({
      log,
      runs: runRows,
      runners: runnerRows,
      replicas: replicaRows,
      logger,
      lostAfterMs: config.MARGAY_RUNNER_LOST_SECONDS * 1_000,
      unlistedAfterMs: config.MARGAY_RUN_UNLISTED_SECONDS * 1_000,
      pool: config.MARGAY_POOL,
      onTakeover: (cause) => metrics.takeovers.inc({ cause }),
    });
    const limits = new TenantLimits((tenantIds) => accessRows.shares(tenantIds), {
      weight: config.MARGAY_TENANT_WEIGHT,
      maxRunning: config.MARGAY_TENANT_CONCURRENT_RUNS || Infinity,
    });
    const queue = new RunQueue({ runs: runRows, limits, leases, logger });
    const positions = new QueuePositions({ queue, runs: runRows, pool: config.MARGAY_POOL, logger });
    const reminders = new QueueReminders({
      runs: runRows,
      sessions: sessionRows,
      positions,
      bus,
      pool: config.MARGAY_POOL,
    });
    const dispatcher = new Dispatcher(
      {
        log,
        runs: runRows,
        queue,
        limits,
        grants,
        bus,
        logger,
        giveBack: (row) => watch.takeOver(row, 'drain'),
        applied: (sessionId, c) => effects.settled(commitKey(sessionId, c)),
        onAssigned: (row, queuedMs) => {
          const lostMs = watch.takenOverSince(row._id);
          if (lostMs !== undefined) metrics.takeoverDuration.observe((performance.now() - lostMs) / 1_000);
          else if (queuedMs !== undefined) metrics.dispatchWait.observe({ pool: row.pool }, queuedMs / 1_000);
        },
      },
      [config.MARGAY_POOL],
    );
    const journals = new JournalRegistry(store, logger);
    const runPorts = {
      log,
      projects,
      models,
      isolation,
      pool: config.MARGAY_POOL,
      stepBudget: config.MARGAY_STEP_BUDGET,
    };
    const sessions = new SessionsService({ ...runPorts, effects, tags });
    const recovery = new RecoveryService(runPorts);
    const questions = new QuestionsService({ ...runPorts, questions: questionRows });
    const fork = new ForkService({
      log,
      effects,
      sessions: sessionRows,
      tags,
      forks,
      logger,
      clock: new SystemClock(),
    });
    const upkeep = new Upkeep(
      {
        db,
        store,
        blobs,
        log,
        effects,
        sessions: sessionRows,
        runners: runnerRows,
        tags,
        forks,
        forkService: fork,
        leases,
        logger,
        onEffectsLag: (seconds) => metrics.effectsLag.set(seconds),
        onRepaired: (sweep, count) => metrics.janitorRepairs.inc({ sweep }, count),
      },
      [questionSweep({ log, runs: runRows, logger }), reminders.sweep],
    );

    const effectsUnderWay = new WorkWatch();
    log.onCommitted((document) => {
      passingFault('session.before-publish', document, () => publishCommit(bus, document));
      passingFault('session.before-effects', document, () => void effectsUnderWay.track(effects.apply(document)));
      metrics.countEnded(document);
    });
    await clockGuard.start();
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
            rows: sessionRows,
            projects,
            models,
            positions,
          }),
        ),
      )
      .add(accessPb.AccessDefinition, storeHandlers(accessHandlers(access)))
      .add(
        runnersPb.RunnersDefinition,
        runnersHandlers({ log, bus, dispatcher, watch, runners: runnerRows, grants, journals, logger }),
      );
    await server.start();
    const removeChecks = registerManagement({
      management,
      metrics,
      bus,
      runs: runRows,
      runners: runnerRows,
      dispatcher,
      effects: effectsUnderWay,
      pool: config.MARGAY_POOL,
      pingStore: () => this.mongo.ping(),
      checkClock: () => this.checkClock(),
    });
    dispatcher.start();
    watch.start();
    journals.start();
    upkeep.start();
    isolation.start();

    this.stop = async () => {
      removeChecks();
      clockGuard.stop();
      for (const part of [isolation, watch, dispatcher]) part.stop();
      const closed = server.close(CLOSE_GRACE_MS);
      // Who looks for another replica finds that this one takes nothing new.
      dispatcher.hangUp();
      void journals.handOver();
      await closed;
      journals.stop();
      log.close();
      await within(CLOSE_GRACE_MS, watch.leave());
      await within(CLOSE_GRACE_MS, Promise.all([upkeep.stop(), effects.idle()]));
      executor.close();
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

import type { ManagementServer, NatsBus, WorkWatch } from '@margay/platform';
import type { Db } from 'mongodb';
import { backupAgeMs } from './backup/backup-age';
import type { Dispatcher } from './dispatch/dispatcher';
import type { RunRepository } from './dispatch/run.repository';
import type { RunnerPools } from './dispatch/runner-pools';
import type { RunnerRepository } from './dispatch/runner.repository';
import type { SessionMetrics } from './metrics';
import { StalledWork } from './stalled';
import { clockSkewMs } from './store/store-clock';

export interface ManagementPorts {
  management: ManagementServer;
  metrics: SessionMetrics;
  bus: NatsBus;
  runs: RunRepository;
  runners: RunnerRepository;
  dispatcher: Dispatcher;
  /** Effects that are being applied. */
  effects: WorkWatch;
  pools: RunnerPools;
  /** Rejects while the store does not answer. */
  pingStore: () => Promise<void>;
  checkClock: () => Promise<void>;
  /** Throws while this replica waits for newer clients to be replaced. */
  checkVersions: () => void;
  /** What is wrong with the file of key-encryption keys. */
  secretsFault: () => string | undefined;
  db: Db;
}

const GAUGE_MS = 5_000;

/** Readiness, liveness, demand and gauges of this replica. @returns takes all of it away */
export function registerManagement(ports: ManagementPorts): () => void {
  const { management, metrics, bus, runs, runners, pools } = ports;
  const stalled = stalledWork(ports);
  const removals = [
    management.registerCheck('session.store', 'ready', ports.pingStore),
    management.registerCheck('session.clock', 'ready', ports.checkClock),
    management.registerCheck('session.version', 'ready', ports.checkVersions),
    management.registerCheck('session.work', 'ready', () => stalled.checkReady()),
    management.registerCheck('session.work', 'live', () => stalled.checkLive()),
    management.registerCheck('session.nats', 'ready', () =>
      bus.isConnected ? undefined : { degraded: 'NATS is down' },
    ),
    management.registerCheck('session.secrets', 'ready', () => {
      const degraded = ports.secretsFault();
      return degraded === undefined ? undefined : { degraded };
    }),
    management.registerRoute('/internal/demand/', async (asked) => {
      const [demand, slots] = await Promise.all([runs.demand(asked), runners.slots(asked)]);
      return { body: { pool: asked, ...demand, demand: demand.queued + demand.running, slots } };
    }),
  ];
  metrics.showDemand(pools.names, (pool) => runs.demand(pool));
  metrics.showVersionGate(ports.checkVersions);
  metrics.showStore({ clockSkewMs: () => clockSkewMs(ports.db), backupAgeMs: () => backupAgeMs(ports.db) });
  const gauge = setInterval(() => showSlots(ports), GAUGE_MS);
  gauge.unref();
  return () => {
    clearInterval(gauge);
    for (const remove of removals) remove();
  };
}

function stalledWork({ dispatcher, effects, pingStore }: ManagementPorts): StalledWork {
  const works = {
    'a look at the run queue': () => dispatcher.lookingMs(),
    'the application of effects': () => effects.oldestMs,
  };
  return new StalledWork({ works, pingStore });
}

function showSlots({ metrics, dispatcher, pools }: ManagementPorts): void {
  for (const pool of pools.names) {
    const { free, held } = dispatcher.slots(pool);
    metrics.runnerSlots.set({ pool, state: 'free' }, free);
    metrics.runnerSlots.set({ pool, state: 'held' }, held);
  }
}

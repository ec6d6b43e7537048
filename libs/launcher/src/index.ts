export { launcherConfig, type LauncherConfig } from './config';
export {
  openNats,
  openServers,
  openStore,
  type OpenServer,
  type OpenServerOptions,
  type OpenServers,
  type OpenStore,
} from './open-servers';
export { PidLedger } from './processes/pid-ledger';
export { freePorts, isPortFree } from './processes/ports';
export { startProcess, type NodeProcessOptions } from './processes/start-process';
export {
  startCommand,
  type CommandProcessOptions,
  type ProcessExit,
  type Readiness,
  type SupervisedProcess,
} from './processes/supervised-process';
export { noProgress, type Progress } from './progress';
export { ensureNats, type EnsureNatsOptions, type NatsProvision } from './provision/nats';
export {
  ensureStore,
  START_SOURCES,
  TEST_SOURCES,
  type EnsureStoreOptions,
  type StoreProvision,
} from './provision/store';
export { type StoreBinary, type StoreSource } from './provision/store-binary';
export { type StoreEngine, type StoreRecord } from './servers/data-folder';
export { startNats, type RunningNats, type StartNatsOptions } from './servers/nats-server';
export { startStore, type RunningStore, type StartStoreOptions } from './servers/store-server';
export { tryLock, withLock, type FileLock, type LockHolder } from './lock';
export { ensureBootstrapKey, ensureKekFile, ensureServiceKeys } from './platform/keys';
export { PlatformProcess, type Life } from './platform/platform-process';
export { SERVICES, type PlatformMode, type Replicas, type ServiceName } from './platform/services';
export { startPlatform, type Platform, type StartPlatformOptions } from './platform/start-platform';
export { startCommandLine, type StartCommand } from './start/start';

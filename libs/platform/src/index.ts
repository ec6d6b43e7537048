export { parseConfig } from './config/parse-config';
export {
  createLogger,
  LOG_LEVELS,
  setLogLevel,
  type Logger,
  type LoggerOptions,
  type LogLevel,
} from './logging/logger';
export { scrubText } from './logging/redaction';
export { hideInLogs } from './logging/hidden-values';
export { SecretMatcher, type Masked } from './redaction/secret-matcher';
export { printsOf, type NamedSecret, type SecretPrint } from './redaction/secret-prints';
export { SecretStream } from './redaction/secret-stream';
export { spellingsOf } from './redaction/spellings';
export { nestLogger } from './logging/nest-logger';
export { ATTRIBUTE } from './telemetry/attributes';
export {
  currentTraceparent,
  isTraced,
  iterateInSpan,
  iterateWithTraceparent,
  markFailed,
  openSpan,
  runWithTraceparent,
  withSpan,
  withSyncSpan,
  type OpenSpan,
  type SpanSettings,
} from './telemetry/spans';
export { mayAssert, systemPrincipal, type TokenKind } from './auth/entitlements';
export { generateKeys, keyId, Trust } from './auth/key-files';
export { callersOf, peerName } from './tls/peers';
export { openTls } from './tls/open-tls';
export { CallerCheck, type PeerCall } from './tls/credentials';
export { TlsIdentity } from './tls/tls-identity';
export { KeyRing, type KeyRingOptions } from './auth/key-ring';
export { type ConnectionAge } from './grpc/channel';
export { GrpcServer, type GrpcServerOptions, type ServeOptions } from './grpc/grpc-server';
export { startGrpcApplication, type GrpcApplicationOptions } from './grpc/grpc-application';
export { traceparentOf } from './grpc/call-context';
export { grpcClient, PINNED_NAME, type GrpcClientOptions } from './grpc/grpc-client';
export {
  audienceOf,
  type CallContext,
  type CallOptions,
  type GrpcClient,
  type GrpcHandlers,
  type ServiceDefinition,
} from './grpc/service-types';
export { startTelemetry, type Telemetry } from './telemetry/telemetry';
export { NatsBus, serversOf, type BusListener, type NatsBusOptions } from './nats/nats-bus';
// The store's driver is heavy: import it from `@margay/platform/mongo`, so only services with a store load it.
export type { MongoConnection, MongoConnectionOptions } from './mongo/mongo-connection';
export { isDuplicateKey, translateStoreError } from './mongo/mongo-errors';
// So is what reads files: `@margay/platform/files`. The names of its variables are not.
export { BLOB_SETTINGS, BlobConfig } from './files/blob-config';
export { LeaseRepository, type LeaseRow } from './leases/lease.repository';
export { eachOf, LeasedSweep, type LeasedSweepPorts, type Sweep } from './leases/leased-sweep';
export { type Check, type CheckKind, type HealthReport } from './management/health';
export { ManagementServer, type InternalRoute, type ManagementServerOptions } from './management/management-server';
export { LabelLimit } from './management/label-limit';
export {
  METADATA_SERVICES,
  NETWORK_PROBE,
  type NetworkQuestions,
  type NetworkReport,
} from './network-probe/network-probe';
export { TenantLabel } from './management/tenant-label';
export { WorkWatch } from './management/work-watch';
export { storeGenerationOf } from './store-generation';
export { compareVersions } from './versions';
export { Shutdown, type ShutdownOptions } from './shutdown';
export { type RunningService, type ServiceShared, type StartService } from './service';
export {
  armFaultPoints,
  FAULT_POINT_NAMES,
  faultPoint,
  parseFaultPlan,
  type FaultAction,
  type FaultPointName,
  type FaultReport,
  type PlannedFault,
} from './faults';

import type { ConnectionAge } from './grpc/channel';
import type { Logger } from './logging/logger';
import type { ManagementServer } from './management/management-server';
import type { Telemetry } from './telemetry/telemetry';
import type { TlsIdentity } from './tls/tls-identity';

/** What one process shares among the services it hosts. */
export interface ServiceShared {
  logger: Logger;
  management: ManagementServer;
  /** Of this build. */
  version?: string;
  telemetry?: Telemetry;
  /** What connections to other services are encrypted with; absent: they are not. */
  tls?: TlsIdentity | undefined;
  /** Whether the turn of this process has come in an upgrade; once it has, it stays so. Absent: always. */
  isItsTurn?: () => boolean;
  /** Of its gRPC servers. */
  connectionAge?: ConnectionAge;
}

export interface RunningService {
  close(): Promise<void>;
}

/** Each service package exports one function of this form, `start<Name>`. */
export type StartService = (environment: NodeJS.ProcessEnv, shared: ServiceShared) => Promise<RunningService>;

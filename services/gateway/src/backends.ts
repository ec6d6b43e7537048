import {
  accessPb,
  egressPb,
  executorPb,
  instancesPb,
  secretsPb,
  sessionsPb,
  snapshotsPb,
  workspacesPb,
} from '@margay/contracts';
import { grpcClient, type GrpcClient, type KeyRing, type Logger } from '@margay/platform';

type Sessions = GrpcClient<typeof sessionsPb.SessionsDefinition>;
type Access = GrpcClient<typeof accessPb.AccessDefinition>;
type Instances = GrpcClient<typeof instancesPb.InstancesDefinition>;
type Secrets = GrpcClient<typeof secretsPb.SecretsDefinition>;
type Egress = GrpcClient<typeof egressPb.EgressDefinition>;
type Workspaces = GrpcClient<typeof workspacesPb.WorkspacesDefinition>;
type Snapshots = GrpcClient<typeof snapshotsPb.SnapshotsDefinition>;
type Executor = GrpcClient<typeof executorPb.ExecutorDefinition>;

export interface BackendAddresses {
  session: string;
  toolExecutor: string;
}

/** Clients of the services behind the gateway. */
export class Backends {
  readonly sessions: Sessions;
  readonly access: Access;
  readonly instances: Instances;
  readonly secrets: Secrets;
  readonly egress: Egress;
  readonly executor: Executor;
  readonly workspaces: Workspaces;
  readonly snapshots: Snapshots;

  constructor(addresses: BackendAddresses, options: { keys: KeyRing; logger: Logger }) {
    this.sessions = grpcClient(sessionsPb.SessionsDefinition, addresses.session, options);
    this.access = grpcClient(accessPb.AccessDefinition, addresses.session, options);
    this.instances = grpcClient(instancesPb.InstancesDefinition, addresses.session, options);
    this.secrets = grpcClient(secretsPb.SecretsDefinition, addresses.session, options);
    this.egress = grpcClient(egressPb.EgressDefinition, addresses.session, options);
    this.executor = grpcClient(executorPb.ExecutorDefinition, addresses.toolExecutor, options);
    this.workspaces = grpcClient(workspacesPb.WorkspacesDefinition, addresses.toolExecutor, options);
    this.snapshots = grpcClient(snapshotsPb.SnapshotsDefinition, addresses.toolExecutor, options);
  }

  close(): void {
    const { sessions, access, instances, secrets, egress, executor, workspaces, snapshots } = this;
    for (const client of [sessions, access, instances, secrets, egress, executor, workspaces, snapshots])
      client.close();
  }
}

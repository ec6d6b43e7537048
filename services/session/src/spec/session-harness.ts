import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import {
  accessPb,
  executorPb,
  runnersPb,
  secretsPb,
  sessionsPb,
  workspacesPb,
  type Principal,
} from '@margay/contracts';
import { FailedPreconditionError } from '@margay/errors';
import { ensureKekFile, freePorts, openServers, TEST_SOURCES, type OpenServers } from '@margay/launcher';
import {
  createLogger,
  generateKeys,
  GrpcServer,
  grpcClient,
  KeyRing,
  ManagementServer,
  systemPrincipal,
  type GrpcClient,
  type RunningService,
} from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import type { Db } from 'mongodb';
import { startSession } from '../start';
import { FakeWorkspaces } from './fake-workspaces';
import { FakeWorktrees } from './fake-worktrees';

const logger = createLogger({ service: 'spec', level: 'off' });

export interface Replica {
  sessions: GrpcClient<typeof sessionsPb.SessionsDefinition>;
  access: GrpcClient<typeof accessPb.AccessDefinition>;
  runners: GrpcClient<typeof runnersPb.RunnersDefinition>;
  /** As the gateway, and as the proxy that uses them. */
  secrets: GrpcClient<typeof secretsPb.SecretsDefinition>;
  egressSecrets: GrpcClient<typeof secretsPb.SecretsDefinition>;
  management: ManagementServer;
  stop(): Promise<void>;
}

/** Session services on real servers, with everything around them that a spec talks to. */
export class SessionHarness {
  readonly fences: executorPb.FenceSessionRequest[] = [];
  readonly listed: executorPb.ListFilesRequest[] = [];
  /** Working trees as tool-executor says that there are. */
  readonly git = new FakeWorktrees();
  /** Workspaces as tool-executor keeps them. */
  readonly workspaces = new FakeWorkspaces();
  /** Sandboxes that were ended because their session works elsewhere. */
  readonly left: { sessionId: string; upToEpoch: number }[] = [];
  /** Sessions whose sandbox was ended. */
  readonly released: string[] = [];
  readonly owner: Principal = principalOf('default', 'user:ada', 'owner');
  sessions!: GrpcClient<typeof sessionsPb.SessionsDefinition>;
  access!: GrpcClient<typeof accessPb.AccessDefinition>;
  runners!: GrpcClient<typeof runnersPb.RunnersDefinition>;
  secrets!: Replica['secrets'];
  egressSecrets!: Replica['egressSecrets'];
  /** Whether tool-executor takes fences. */
  isExecutorUp = true;
  /** How tool-executor says that it isolates. */
  isolation = 'bwrap';
  /** Of which classes it says that sandboxes can be. */
  sandboxClasses = ['default', 'dense', 'strict'];
  private readonly database = `spec_${randomBytes(6).toString('hex')}`;
  private readonly closers: (() => Promise<void> | void)[] = [];
  private servers!: OpenServers;
  private directory!: string;
  private environment: NodeJS.ProcessEnv = {};
  private replica?: RunningService;
  private mongo?: MongoConnection;

  async start(overrides: NodeJS.ProcessEnv = {}): Promise<void> {
    this.directory = await mkdtemp(join(tmpdir(), 'margay-session-'));
    this.servers = await openServers({ directory: this.directory, allow: TEST_SOURCES });
    const keysDirectory = join(this.directory, 'keys');
    await generateKeys(keysDirectory, ['gateway', 'session', 'agent-runner', 'tool-executor', 'egress']);
    const kekFile = join(this.directory, 'kek.json');
    await ensureKekFile(kekFile);
    const [sessionPort, executorPort] = await freePorts(2);
    await this.startExecutor(keysDirectory, executorPort ?? 0);
    this.environment = {
      MARGAY_SESSION_LISTEN: `127.0.0.1:${sessionPort}`,
      MARGAY_MONGODB_URL: this.servers.store.url,
      MARGAY_MONGODB_DATABASE: this.database,
      MARGAY_NATS_URL: this.servers.nats.url,
      MARGAY_KEYS_DIR: keysDirectory,
      MARGAY_KEK_FILE: kekFile,
      MARGAY_TOOL_EXECUTOR_URL: `127.0.0.1:${executorPort}`,
      MARGAY_MODEL: 'spec-model',
      MARGAY_RUN_UNLISTED_SECONDS: '0',
      // Other spec files share the broker: nudges of their pools are not ours.
      MARGAY_POOL: this.database,
      ...overrides,
    };
    await this.startReplica();
    Object.assign(this, await this.clientsOf(`127.0.0.1:${sessionPort}`));
  }

  get pool(): string {
    return this.database;
  }

  /** Where the document store is reached without anything in between. */
  get storeUrl(): string {
    return this.servers.store.url;
  }

  async startReplica(): Promise<void> {
    const management = new ManagementServer({ listen: '127.0.0.1:0', logger });
    this.replica = await startSession(this.environment, { logger, management });
  }

  async stopReplica(): Promise<void> {
    await this.replica?.close();
    delete this.replica;
  }

  /** A further replica on the same store; the caller stops it. */
  async addReplica(overrides: NodeJS.ProcessEnv = {}): Promise<Replica> {
    const [port] = await freePorts(1);
    const address = `127.0.0.1:${port}`;
    const management = new ManagementServer({ listen: '127.0.0.1:0', logger });
    const environment = { ...this.environment, MARGAY_SESSION_LISTEN: address, ...overrides };
    const service = await startSession(environment, { logger, management });
    return { ...(await this.clientsOf(address)), management, stop: () => service.close() };
  }

  /** Where the broker is. */
  get natsUrl(): string {
    return this.servers.nats.url;
  }

  /** The database itself. */
  async db(): Promise<Db> {
    this.mongo ??= new MongoConnection({ url: this.storeUrl, database: this.database, logger, name: 'spec' });
    await this.mongo.ready(60_000);
    return this.mongo.connection.db as unknown as Db;
  }

  async stop(): Promise<void> {
    for (const close of this.closers.reverse()) await close();
    await this.stopReplica();
    await (await this.db()).dropDatabase();
    await this.mongo?.close();
    await this.servers.stop();
    await rm(this.directory, { recursive: true, force: true });
  }

  async createSession(
    principal = this.owner,
    overrides: Partial<sessionsPb.CreateSessionRequest> = {},
  ): Promise<string> {
    const request = sessionsPb.CreateSessionRequest.fromPartial(overrides);
    return (await this.sessions.createSession(request, { principal })).sessionId;
  }

  accept(
    sessionId: string,
    text: string,
    idempotencyKey = '',
    principal = this.owner,
  ): Promise<sessionsPb.AcceptRunResponse> {
    return this.sessions.acceptRun(sessionsPb.AcceptRunRequest.fromPartial({ sessionId, text, idempotencyKey }), {
      principal,
    });
  }

  /** All stored events of a session, parsed. */
  async events(
    sessionId: string,
    principal = this.owner,
  ): Promise<{ type: string; payload: Record<string, unknown>; seq: number; ts: string }[]> {
    const found: { type: string; payload: Record<string, unknown>; seq: number; ts: string }[] = [];
    const pages = this.sessions.readCommits(
      { sessionId, from: undefined, beforeTs: 0, last: 0, first: 0 },
      { principal },
    );
    for await (const { commits } of pages)
      for (const { frames } of commits)
        found.push(...frames.map(({ json }) => JSON.parse(json) as (typeof found)[number]));
    return found;
  }

  async state(sessionId: string): Promise<sessionsPb.SessionState> {
    const { state } = await this.sessions.getState({ sessionId }, { principal: this.owner });
    if (!state) throw new Error('state expected');
    return state;
  }

  private async clientsOf(address: string): Promise<Omit<Replica, 'management' | 'stop'>> {
    const keysDirectory = join(this.directory, 'keys');
    const gateway = await KeyRing.load(keysDirectory, 'gateway');
    const runner = await KeyRing.load(keysDirectory, 'agent-runner');
    const egress = await KeyRing.load(keysDirectory, 'egress');
    const clients = {
      sessions: grpcClient(sessionsPb.SessionsDefinition, address, { keys: gateway, logger }),
      access: grpcClient(accessPb.AccessDefinition, address, { keys: gateway, logger }),
      runners: grpcClient(runnersPb.RunnersDefinition, address, { keys: runner, logger }),
      secrets: grpcClient(secretsPb.SecretsDefinition, address, { keys: gateway, logger }),
      egressSecrets: grpcClient(secretsPb.SecretsDefinition, address, { keys: egress, logger }),
    };
    this.closers.push(...Object.values(clients).map((client) => () => client.close()));
    return clients;
  }

  private async startExecutor(keysDirectory: string, port: number): Promise<void> {
    const keys = await KeyRing.load(keysDirectory, 'tool-executor');
    const refuse = () => Promise.reject(new Error('not part of this spec'));
    const server = new GrpcServer({ listen: `127.0.0.1:${port}`, keys, logger }).add(executorPb.ExecutorDefinition, {
      listTools: () =>
        Promise.resolve({ toolsJson: [], isolation: this.isolation, sandboxClasses: this.sandboxClasses }),
      execute: () => {
        throw new Error('not part of this spec');
      },
      calls: (stream) => void stream.end(),
      cancelCall: refuse,
      resolveCaller: refuse,
      placeAttachment: refuse,
      expandReferences: refuse,
      listBranches: ({ workspaceJson }) => {
        if (workspaceJson.includes('missing')) throw new FailedPreconditionError('workspace_missing', 'no folder');
        const found = { branches: ['main'], currentBranch: 'main', branchesInUse: ['main'] };
        return Promise.resolve({ isGit: workspaceJson.includes('project'), ...found, stale: false });
      },
      listFiles: (request) => {
        this.listed.push(request);
        return Promise.resolve({ files: ['src/a.ts'], stale: false, truncated: false });
      },
      listWorktrees: () => Promise.resolve({ isGit: true, worktrees: this.git.worktrees, stale: false }),
      addWorktree: (request) => this.git.add(request),
      removeWorktree: (request) => this.git.remove(request),
      describeWorkspaces: ({ workspacesJson }) =>
        Promise.resolve({ workspaces: workspacesJson.map((json) => this.git.describe(json)) }),
      release: ({ sessionId, upToEpoch }) => {
        if (!this.isExecutorUp) return refuse();
        this.released.push(sessionId);
        if (upToEpoch !== undefined) this.left.push({ sessionId, upToEpoch });
        return Promise.resolve({});
      },
      fenceSession: (request) => {
        if (!this.isExecutorUp) return refuse();
        this.fences.push(request);
        return Promise.resolve({});
      },
    });
    server.add(workspacesPb.WorkspacesDefinition, this.workspaces.handlers());
    await server.start();
    this.closers.push(() => server.close(100));
  }
}

export function principalOf(tenantId: string, principal: string, role: Principal['role']): Principal {
  return { v: 1, iss: 'gateway', tenantId, principal, role, scopes: null };
}

export const gatewayPrincipal = systemPrincipal('gateway', 'default');

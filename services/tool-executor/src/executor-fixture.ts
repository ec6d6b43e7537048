import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { executorPb, snapshotsPb, workspacesPb, type Principal, type RunGrant } from '@margay/contracts';
import {
  createLogger,
  generateKeys,
  grpcClient,
  KeyRing,
  ManagementServer,
  systemPrincipal,
  type GrpcClient,
} from '@margay/platform';
import { removeTree } from '@margay/toolbox';
import { startToolExecutor, type RunningToolExecutor } from './start-tool-executor';

const BUNDLER = path.join(__dirname, '../../sandboxd/bundle.mjs');

export interface Heard {
  output: string;
  reattached?: boolean;
  incarnation?: string;
  finished?: executorPb.ExecuteFinished;
  wrongIncarnation?: string;
  /** Why the sandbox did not come at once. */
  waits: executorPb.ExecuteWaiting[];
  /** What happened to the workspace. */
  notices: { type: string; payload: Record<string, unknown> }[];
  /** The result as an object. */
  result: Record<string, unknown>;
}

export function nothingHeard(): Heard {
  return { output: '', waits: [], notices: [], result: {} };
}

/** Of all fixtures of a file: replicas share the journals of sandboxes. */
let calls = 0;

/** For specs: tool-executor with real sandboxes, and a session and a runner to call it. */
export class ExecutorFixture {
  readonly home = mkdtempSync(path.join(tmpdir(), 'margay-home-'));
  readonly keysFolder: string;
  readonly entry = path.join(this.home, 'sandboxd.cjs');
  private readonly logger = createLogger({ level: 'off' });
  private session?: KeyRing;
  private management?: ManagementServer;
  private running?: RunningToolExecutor;
  private connection?: GrpcClient<typeof executorPb.ExecutorDefinition>;
  private forPeople?: GrpcClient<typeof workspacesPb.WorkspacesDefinition>;
  private forArchives?: GrpcClient<typeof snapshotsPb.SnapshotsDefinition>;
  private forSession?: GrpcClient<typeof workspacesPb.WorkspacesDefinition>;
  private forForks?: GrpcClient<typeof snapshotsPb.SnapshotsDefinition>;
  private lives = 0;
  private readonly abandoned: (() => Promise<void>)[] = [];

  /** @param keysFolder of another fixture, whose replica this one is */
  constructor(keysFolder?: string) {
    this.keysFolder = keysFolder ?? path.join(this.home, 'keys');
  }

  async start(environment: Record<string, string> = {}): Promise<this> {
    if (!existsSync(this.entry)) execFileSync(process.execPath, [BUNDLER, this.entry]);
    await generateKeys(this.keysFolder, ['session', 'tool-executor', 'gateway']);
    this.session = await KeyRing.load(this.keysFolder, 'session');
    this.management = new ManagementServer({ listen: '127.0.0.1:0', logger: this.logger });
    this.lives += 1;
    const listen = `unix:${this.home}/executor-${this.lives}.sock`;
    const settings = {
      MARGAY_TOOL_EXECUTOR_LISTEN: listen,
      MARGAY_KEYS_DIR: this.keysFolder,
      MARGAY_HOME: this.home,
      MARGAY_SANDBOXD_ENTRY: this.entry,
      ...environment,
    };
    this.running = await startToolExecutor(settings, { logger: this.logger, management: this.management });
    this.connection = grpcClient(executorPb.ExecutorDefinition, listen, { keys: this.session });
    const keys = await KeyRing.load(this.keysFolder, 'gateway');
    this.forPeople = grpcClient(workspacesPb.WorkspacesDefinition, listen, { keys });
    this.forArchives = grpcClient(snapshotsPb.SnapshotsDefinition, listen, { keys });
    this.forSession = grpcClient(workspacesPb.WorkspacesDefinition, listen, { keys: this.session });
    this.forForks = grpcClient(snapshotsPb.SnapshotsDefinition, listen, { keys: this.session });
    return this;
  }

  get metrics(): Promise<string> {
    return this.management?.registry.metrics() ?? Promise.resolve('');
  }

  get isolation(): string {
    return this.running?.isolation ?? 'not started';
  }

  get client(): GrpcClient<typeof executorPb.ExecutorDefinition> {
    if (!this.connection) throw new Error('start the fixture first');
    return this.connection;
  }

  /** As people ask it, by the gateway. */
  get workspaces(): GrpcClient<typeof workspacesPb.WorkspacesDefinition> {
    if (!this.forPeople) throw new Error('start the fixture first');
    return this.forPeople;
  }

  get snapshots(): GrpcClient<typeof snapshotsPb.SnapshotsDefinition> {
    if (!this.forArchives) throw new Error('start the fixture first');
    return this.forArchives;
  }

  /** As session asks it. */
  get workspacesOfSession(): GrpcClient<typeof workspacesPb.WorkspacesDefinition> {
    if (!this.forSession) throw new Error('start the fixture first');
    return this.forSession;
  }

  get snapshotsOfSession(): GrpcClient<typeof snapshotsPb.SnapshotsDefinition> {
    if (!this.forForks) throw new Error('start the fixture first');
    return this.forForks;
  }

  as(principal: string, role: Principal['role'] = 'member', tenantId = 't1'): { principal: Principal } {
    return { principal: { v: 1, iss: 'gateway', tenantId, principal, role, scopes: null } };
  }

  get principal() {
    return { principal: systemPrincipal('session', 't1') };
  }

  token(more: Partial<RunGrant> = {}): Promise<string> {
    if (!this.session) throw new Error('start the fixture first');
    const grant: RunGrant = {
      v: 1,
      tenantId: 't1',
      sessionId: 's1',
      runId: 'r1',
      epoch: 1,
      storeGeneration: 0,
      principal: 'user:ada',
      workspace: { kind: 'own' },
      ...more,
    };
    return this.session.signRunGrant(grant);
  }

  shell(
    command: string,
    grant: Partial<RunGrant> = {},
    more: Partial<executorPb.ExecuteRequest> = {},
    heard = nothingHeard(),
  ): Promise<Heard> {
    return this.call('aider_shell_tool', { command }, grant, more, heard);
  }

  /** Runs one call to its end under a new id; `heard` fills while it goes on. */
  async call(
    toolId: string,
    args: object,
    grant: Partial<RunGrant> = {},
    more: Partial<executorPb.ExecuteRequest> = {},
    heard = nothingHeard(),
  ): Promise<Heard> {
    calls += 1;
    const request = {
      callId: `${grant.sessionId ?? 's1'}.${grant.epoch ?? 1}.0.${calls}`,
      toolId,
      argsJson: JSON.stringify(args),
      timeoutMs: 0,
      fromOffset: 0,
      incarnation: '',
      ...more,
    };
    for await (const { message } of this.client.execute(request, { grant: await this.token(grant) })) {
      if (message?.$case === 'started') Object.assign(heard, message.value);
      if (message?.$case === 'output') heard.output += Buffer.from(message.value.bytes).toString();
      if (message?.$case === 'wrongIncarnation') heard.wrongIncarnation = message.value.incarnation;
      if (message?.$case === 'waiting') heard.waits.push(message.value);
      if (message?.$case === 'notice') {
        const { type, payloadJson } = message.value;
        heard.notices.push({ type, payload: JSON.parse(payloadJson) as Record<string, unknown> });
      }
      if (message?.$case === 'finished') heard.finished = message.value;
    }
    const result: unknown = JSON.parse(heard.finished?.resultJson ?? 'null');
    heard.result = typeof result === 'object' && result !== null ? { ...result } : { text: result };
    return heard;
  }

  /** Closes the service; sandboxes end with it. */
  async stop(): Promise<void> {
    for (const client of [this.connection, this.forPeople, this.forSession, this.forArchives, this.forForks])
      client?.close();
    await this.running?.close();
    await this.management?.close();
  }

  /** As a crash would: nothing is ended, and the next start knows only what is on disk. */
  crash(): void {
    const { running, connection, management, forPeople, forSession, forArchives, forForks } = this;
    for (const client of [connection, forPeople, forSession, forArchives, forForks]) client?.close();
    this.abandoned.push(async () => {
      await running?.close();
      await management?.close();
    });
  }

  async remove(): Promise<void> {
    await this.stop();
    for (const close of this.abandoned) await close();
    await removeTree(this.home);
  }
}

import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { runnersPb, sessionsPb, subjects, type LiveDelta, type Principal, type StoredEvent } from '@margay/contracts';
import { ensureKekFile, freePorts, openServers, TEST_SOURCES, type OpenServers } from '@margay/launcher';
import {
  createLogger,
  generateKeys,
  grpcClient,
  KeyRing,
  ManagementServer,
  NatsBus,
  systemPrincipal,
  type GrpcClient,
  type RunningService,
} from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import { startSession } from '@margay/session';

const logger = createLogger({ level: 'off' });
const OWNER: Principal = {
  v: 1,
  iss: 'gateway',
  tenantId: 'default',
  principal: 'user:ada',
  role: 'owner',
  scopes: null,
};

/** A session service on real servers, and a runner process played by a spec that takes its assignments. */
export class SessionService {
  runners!: GrpcClient<typeof runnersPb.RunnersDefinition>;
  readonly deltas: string[] = [];
  /** `run epoch` of each run that the played runner was told to let go. */
  readonly revoked: string[] = [];
  private readonly database = `runner_${randomBytes(6).toString('hex')}`;
  private readonly assigns: runnersPb.Assign[] = [];
  private sessions!: GrpcClient<typeof sessionsPb.SessionsDefinition>;
  private attached!: ReturnType<GrpcClient<typeof runnersPb.RunnersDefinition>['attach']>;
  private servers!: OpenServers;
  private service!: RunningService;
  private bus!: NatsBus;
  private directory!: string;

  async start(): Promise<void> {
    this.directory = await mkdtemp(join(tmpdir(), 'margay-journal-'));
    this.servers = await openServers({ directory: this.directory, allow: TEST_SOURCES });
    const keysDirectory = join(this.directory, 'keys');
    await generateKeys(keysDirectory, ['gateway', 'session', 'agent-runner', 'tool-executor']);
    const kekFile = join(this.directory, 'kek.json');
    await ensureKekFile(kekFile);
    const [port, nobody] = await freePorts(2);
    const address = `127.0.0.1:${port}`;
    const environment = {
      MARGAY_SESSION_LISTEN: address,
      MARGAY_MONGODB_URL: this.servers.store.url,
      MARGAY_MONGODB_DATABASE: this.database,
      MARGAY_NATS_URL: this.servers.nats.url,
      MARGAY_KEYS_DIR: keysDirectory,
      MARGAY_KEK_FILE: kekFile,
      MARGAY_TOOL_EXECUTOR_URL: `127.0.0.1:${nobody}`,
      MARGAY_MODEL: 'spec-model',
      MARGAY_POOL: this.database,
    };
    const management = new ManagementServer({ listen: '127.0.0.1:0', logger });
    this.service = await startSession(environment, { logger, management });
    const keys = await KeyRing.load(keysDirectory, 'gateway');
    const runnerKeys = await KeyRing.load(keysDirectory, 'agent-runner');
    this.sessions = grpcClient(sessionsPb.SessionsDefinition, address, { keys, logger });
    this.runners = grpcClient(runnersPb.RunnersDefinition, address, { keys: runnerKeys, logger });
    this.bus = new NatsBus({ url: this.servers.nats.url, name: 'spec', logger });
    await this.bus.start();
    this.attach();
  }

  async stop(): Promise<void> {
    this.detach();
    for (const client of [this.sessions, this.runners]) client?.close();
    await this.bus?.close();
    await this.service?.close();
    const mongo = new MongoConnection({ url: this.servers.store.url, database: this.database, logger, name: 'spec' });
    await mongo.ready(10_000);
    await mongo.connection.dropDatabase();
    await mongo.close();
    await this.servers.stop();
    await rm(this.directory, { recursive: true, force: true });
  }

  /** A new session with one run, assigned to the played runner. */
  async newRun(): Promise<runnersPb.Assign> {
    const request = sessionsPb.CreateSessionRequest.fromPartial({});
    const { sessionId } = await this.sessions.createSession(request, { principal: OWNER });
    this.bus.subscribe(subjects.sessionDeltas('default', sessionId), (data) => {
      const { payload } = JSON.parse(Buffer.from(data).toString('utf8')) as LiveDelta;
      this.deltas.push(payload.text);
    });
    await this.bus.flush();
    const accept = sessionsPb.AcceptRunRequest.fromPartial({ sessionId, text: 'Go.' });
    await this.sessions.acceptRun(accept, { principal: OWNER });
    return this.assignOf(sessionId);
  }

  /** The next assignment of this session. */
  async assignOf(sessionId: string): Promise<runnersPb.Assign> {
    for (;;) {
      const at = this.assigns.findIndex((assign) => assign.sessionId === sessionId);
      const [found] = at < 0 ? [] : this.assigns.splice(at, 1);
      if (found) return found;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  /** Another runner process takes the place of the one that was: all its runs get a new owner. */
  changeRunner(): void {
    this.detach();
    this.attach();
  }

  /** The runner says that the process of this run is gone. */
  reportDied({ sessionId, runId, epoch }: runnersPb.Assign): void {
    const value = { sessionId, runId, epoch, detail: 'its process was aborted' };
    this.attached.write({ message: { $case: 'died', value } });
  }

  steer(sessionId: string, text: string): Promise<unknown> {
    return this.sessions.sendMessage(sessionsPb.SendMessageRequest.fromPartial({ sessionId, text }), {
      principal: OWNER,
    });
  }

  interrupt(sessionId: string): Promise<unknown> {
    return this.sessions.interruptRun({ sessionId, idempotencyKey: '' }, { principal: OWNER });
  }

  cancel(sessionId: string): Promise<unknown> {
    return this.sessions.cancelRun({ sessionId, idempotencyKey: '' }, { principal: OWNER });
  }

  async events(sessionId: string): Promise<StoredEvent[]> {
    const events: StoredEvent[] = [];
    for await (const { commits } of this.sessions.readCommits(
      { sessionId, from: undefined, beforeTs: 0, last: 0, first: 0 },
      { principal: OWNER },
    ))
      for (const { frames } of commits) events.push(...frames.map(({ json }) => JSON.parse(json) as StoredEvent));
    return events;
  }

  private detach(): void {
    this.attached?.write({ message: { $case: 'drained', value: {} } });
    this.attached?.end();
  }

  private attach(): void {
    this.attached = this.runners.attach({ principal: systemPrincipal('agent-runner', '_platform') });
    this.attached.on('data', ({ message }) => {
      if (message?.$case === 'assign') this.assigns.push(message.value);
      if (message?.$case === 'revoke') this.revoked.push(`${message.value.runId} ${message.value.epoch}`);
    });
    this.attached.on('error', () => undefined);
    const hello = { instance: randomBytes(8).toString('hex'), pool: this.database, slots: 1_000, version: '1' };
    this.attached.write({ message: { $case: 'hello', value: hello } });
    const heartbeat = { beat: 1, freeSlots: 1_000, runs: [] };
    this.attached.write({ message: { $case: 'heartbeat', value: heartbeat } });
  }
}

import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { accessPb, egressPb, executorPb, secretsPb, sessionsPb, snapshotsPb, workspacesPb } from '@margay/contracts';
import { createLogger, generateKeys, GrpcServer, KeyRing } from '@margay/platform';
import { Registry } from 'prom-client';
import { Backends } from '../backends';
import { startGatewayApp, type GatewayParts, type RunningGateway } from '../gateway-app';
import { STREAM_SETTINGS, type StreamSettings } from '../stream/settings';
import { FakeEgressPolicy } from './fake-egress-policy';
import { FakeSecrets } from './fake-secrets';
import { FakeSession, type SpecKey } from './fake-session';
import { FakeSnapshots } from './fake-snapshots';
import { FakeWorkspaces } from './fake-workspaces';
import { SpecBus } from './spec-bus';
import { SseReader } from './sse-reader';

export const MASTER_TOKEN = 'a-master-token-of-a-spec-0001';

/** Streams with times short enough for specs. */
const QUICK: Partial<StreamSettings> = {
  gapMs: 30,
  probeMs: 100,
  lingerMs: 60,
  recheckMs: 100,
  drainMs: 40,
  retryFirstMs: 10,
};

export interface HttpAnswer {
  status: number;
  headers: Headers;
  text: string;
  /** Undefined where the body is no JSON. */
  body: unknown;
}

export interface RequestOptions {
  key?: string | null;
  headers?: Record<string, string>;
  body?: unknown;
  rawBody?: string;
}

/** A gateway on real gRPC, with the session service faked over the real log. */
export class GatewayHarness {
  readonly bus = new SpecBus();
  readonly session = new FakeSession(this.bus);
  readonly secrets = new FakeSecrets();
  readonly egressPolicy = new FakeEgressPolicy();
  readonly workspaces = new FakeWorkspaces();
  readonly snapshots = new FakeSnapshots(this.workspaces.workspaceId);
  readonly registry = new Registry();
  readonly logLines: string[] = [];
  key!: SpecKey;
  gateway!: RunningGateway;
  private readonly readers: SseReader[] = [];
  private readonly closers: (() => Promise<void> | void)[] = [];

  async start(
    overrides: Partial<Omit<GatewayParts, 'streams'>> & { streams?: Partial<StreamSettings> } = {},
  ): Promise<void> {
    this.key = this.session.addKey();
    const directory = await mkdtemp(join(tmpdir(), 'margay-gateway-'));
    this.closers.push(() => rm(directory, { recursive: true, force: true }));
    await generateKeys(directory, ['gateway', 'session', 'tool-executor']);
    const quiet = createLogger({ service: 'spec', level: 'off' });
    const session = new GrpcServer({
      listen: '127.0.0.1:0',
      keys: await KeyRing.load(directory, 'session'),
      logger: quiet,
    })
      .add(sessionsPb.SessionsDefinition, this.session.sessions())
      .add(accessPb.AccessDefinition, this.session.access())
      .add(egressPb.EgressDefinition, this.egressPolicy.handlers())
      .add(secretsPb.SecretsDefinition, this.secrets.handlers());
    const executor = new GrpcServer({
      listen: '127.0.0.1:0',
      keys: await KeyRing.load(directory, 'tool-executor'),
      logger: quiet,
    });
    executor.add(executorPb.ExecutorDefinition, executorHandlers());
    executor.add(workspacesPb.WorkspacesDefinition, this.workspaces.handlers());
    executor.add(snapshotsPb.SnapshotsDefinition, this.snapshots.handlers());
    const [{ port: sessionPort }, { port: executorPort }] = [await session.start(), await executor.start()];
    const logger = createLogger({ service: 'gateway', level: 'debug', write: (line) => this.logLines.push(line) });
    const addresses = { session: `127.0.0.1:${sessionPort}`, toolExecutor: `127.0.0.1:${executorPort}` };
    const keys = await KeyRing.load(directory, 'gateway');
    const backends = new Backends(addresses, { keys, logger });
    this.closers.push(
      () => executor.close(50),
      () => session.close(50),
      () => backends.close(),
    );
    this.gateway = await startGatewayApp({
      listen: { host: '127.0.0.1', port: 0 },
      backends,
      keys,
      bus: this.bus,
      corsOrigins: '*',
      rateLimit: { perSecond: 10_000, burst: 10_000 },
      masterToken: MASTER_TOKEN,
      logger,
      registry: this.registry,
      ...overrides,
      streams: { ...STREAM_SETTINGS, ...QUICK, ...overrides.streams },
    });
    this.closers.push(() => this.gateway.close());
  }

  async stop(): Promise<void> {
    for (const reader of this.readers) reader.close();
    for (const close of this.closers.splice(0).reverse()) await close();
    this.session.close();
  }

  get url(): string {
    return `http://127.0.0.1:${this.gateway.port}`;
  }

  async request(method: string, path: string, options: RequestOptions = {}): Promise<HttpAnswer> {
    const { key = this.key.text, body, rawBody = body === undefined ? undefined : JSON.stringify(body) } = options;
    const headers = {
      ...(key === null ? {} : { 'X-API-KEY': key }),
      ...(rawBody === undefined ? {} : { 'Content-Type': 'application/json' }),
      ...options.headers,
    };
    const response = await fetch(this.url + path, {
      method,
      headers,
      ...(rawBody === undefined ? {} : { body: rawBody }),
    });
    const text = await response.text();
    return { status: response.status, headers: response.headers, text, body: parsed(text) };
  }

  /** Status and headers of an answer that goes on; the connection is given up. */
  async head(path: string): Promise<HttpAnswer> {
    const { response, status } = await this.follow(path);
    return { status, headers: new Headers(response.headers as Record<string, string>), text: '', body: undefined };
  }

  get(path: string, options?: RequestOptions): Promise<HttpAnswer> {
    return this.request('GET', path, options);
  }

  post(path: string, body?: unknown, options: RequestOptions = {}): Promise<HttpAnswer> {
    return this.request('POST', path, { ...options, body });
  }

  /** Opens a stream; it is closed with the harness. */
  stream(sessionId: string, query = '', headers: Record<string, string> = {}): Promise<SseReader> {
    return this.follow(`/api/sessions/${sessionId}/stream${query}`, { 'X-API-KEY': this.key.text, ...headers });
  }

  /** Opens any path as a stream; it is closed with the harness. */
  async follow(path: string, headers: Record<string, string> = { 'X-API-KEY': this.key.text }): Promise<SseReader> {
    const reader = await SseReader.open(this.url + path, headers);
    this.readers.push(reader);
    return reader;
  }
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function executorHandlers() {
  const refuse = () => Promise.reject(new Error('not part of these specs'));
  const tool = {
    tool_id: 'read_file',
    name: 'read_file',
    description: 'Reads a file.',
    schema: { type: 'object' },
    operation: 'get',
    effect: 'pure',
  };
  return {
    listTools: () => Promise.resolve({ toolsJson: [JSON.stringify(tool)], sandboxClasses: [] }),
    execute: () => {
      throw new Error('not part of these specs');
    },
    calls: (stream: { end(): void }) => stream.end(),
    cancelCall: refuse,
    fenceSession: refuse,
    placeAttachment: refuse,
    expandReferences: refuse,
    listFiles: refuse,
    listBranches: refuse,
    listWorktrees: refuse,
    addWorktree: refuse,
    removeWorktree: refuse,
    describeWorkspaces: refuse,
    resolveCaller: refuse,
    release: refuse,
  };
}

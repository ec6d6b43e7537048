import { randomBytes } from 'node:crypto';
import { chmod, cp, mkdir, mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { MargayClient, type Session } from '@margay/client';
import { accessPb } from '@margay/contracts';
import {
  openServers,
  startPlatform,
  TEST_SOURCES,
  type OpenServers,
  type Platform,
  type PlatformMode,
  type Replicas,
  type StartPlatformOptions,
} from '@margay/launcher';
import { createLogger, grpcClient, KeyRing } from '@margay/platform';
import { MongoConnection } from '@margay/platform/mongo';
import { ScriptedModelServer, type Script } from '@margay/testing';
import { removeTree } from '@margay/toolbox';

const root = join(__dirname, '../..');
const logger = createLogger({ service: 'e2e', level: 'off' });

export interface HarnessOptions {
  mode: PlatformMode;
  runners?: number;
  /** Several gateways, sessions or runners, in split mode. */
  replicas?: Replicas;
  env?: NodeJS.ProcessEnv;
  adapt?: StartPlatformOptions['adapt'];
  readyTimeoutMs?: number;
  /** Who may reach what outside; without it sandboxes reach nothing. */
  egressPolicy?: object;
  /** Starts processes again that end by themselves. */
  respawn?: boolean;
  /** Runs copies of the bundles: a build meanwhile changes nothing. */
  copiesBundles?: boolean;
  /** Default: the servers that the environment names, else new ones. */
  servers?: (directory: string) => Promise<OpenServers>;
}

/** A frame as it came over the wire. */
export interface WireFrame {
  text: string;
  event: { type: string; seq?: number; ts?: string; payload?: Record<string, unknown>; running?: boolean };
}

export interface FramesOptions {
  /** Cursor from which to go on. */
  after?: string;
  query?: string;
  takes?: (frame: WireFrame) => boolean;
  signal?: AbortSignal;
  /** Default: the first gateway. */
  gatewayUrl?: string;
}

/** Margay's real processes on real servers, with a scripted model. */
export class PlatformHarness {
  platform!: Platform;
  model!: ScriptedModelServer;
  client!: MargayClient;
  private directory!: string;
  private servers!: OpenServers;
  private bundles = join(root, 'dist');
  /** Name of its database. */
  readonly database = `e2e_${randomBytes(6).toString('hex')}`;

  constructor(private readonly options: HarnessOptions) {}

  async start(): Promise<void> {
    // Below a folder that other users may enter: sandboxes run under ids of their own.
    this.directory = await mkdtemp(join(tmpdir(), 'margay-e2e-'));
    await chmod(this.directory, 0o711);
    const directory = join(this.directory, 'servers');
    const { servers } = this.options;
    this.servers = await (servers ? servers(directory) : openServers({ directory, allow: TEST_SOURCES }));
    this.model = await ScriptedModelServer.start();
    if (this.options.copiesBundles) await this.copyBundles();
    await this.startPlatform();
  }

  async startPlatform(): Promise<void> {
    const { mode, runners = 1, replicas, env, adapt, readyTimeoutMs, respawn = false } = this.options;
    const { egressPolicy } = this.options;
    if (egressPolicy) await this.setEgressPolicy(egressPolicy);
    this.platform = await startPlatform({
      mode,
      ...(egressPolicy && { egressPolicyFile: this.egressPolicyFile }),
      runners,
      ...(replicas && { replicas }),
      ...(adapt && { adapt }),
      ...(readyTimeoutMs !== undefined && { readyTimeoutMs }),
      respawn,
      home: join(this.directory, 'home'),
      nats: this.servers.nats,
      store: this.servers.store,
      database: this.database,
      entry: join(this.bundles, 'margay.cjs'),
      sandboxdEntry: join(this.bundles, 'sandboxd.cjs'),
      env: {
        OPENAI_BASE_URL: this.model.baseUrl,
        OPENAI_API_KEY: 'e2e',
        MARGAY_MODEL: 'scripted',
        MARGAY_ALLOW_EXTERNAL_CWD: 'true',
        MARGAY_POOL: this.database,
        ...env,
      },
    });
    this.client = this.clientFor(this.platform.apiKey);
  }

  /** `MARGAY_HOME` of the platform. */
  get home(): string {
    return join(this.directory, 'home');
  }

  /** Acts within a second or two. */
  setEgressPolicy(policy: object): Promise<void> {
    return writeFile(this.egressPolicyFile, JSON.stringify(policy));
  }

  private get egressPolicyFile(): string {
    return join(this.directory, 'egress-policy.json');
  }

  clientFor(apiKey: string): MargayClient {
    return new MargayClient({ baseUrl: this.platform.gatewayUrl, apiKey });
  }

  async stop(): Promise<void> {
    await this.platform?.stop();
    await this.model?.close();
    if (this.servers) {
      const mongo = new MongoConnection({ url: this.servers.store.url, database: this.database, logger, name: 'e2e' });
      await mongo.ready(10_000);
      await mongo.connection.dropDatabase();
      await mongo.close();
      await this.servers.stop();
    }
    if (this.directory) await removeTree(this.directory);
  }

  /** A session on a new workspace with these files. */
  async sessionWith(files: Record<string, string>): Promise<Session> {
    return this.client.sessions.create({ cwd: await this.workspace(files) });
  }

  /** A folder below the home, whose owner the tool-executor may change. */
  async workspace(files: Record<string, string>): Promise<string> {
    const folder = join(this.directory, 'home', 'workspaces', randomBytes(6).toString('hex'));
    for (const [path, content] of Object.entries(files)) {
      await mkdir(dirname(join(folder, path)), { recursive: true });
      await writeFile(join(folder, path), content);
    }
    await mkdir(folder, { recursive: true });
    return folder;
  }

  async sampleWorkspace(): Promise<string> {
    const folder = await this.workspace({});
    await cp(join(root, 'tools/sample-workspace'), folder, { recursive: true });
    return folder;
  }

  /** The script of every model call from here on. */
  script(script: Script): void {
    this.model.use(script);
  }

  get natsUrl(): string {
    return this.servers.nats.url;
  }

  get storeUrl(): string {
    return this.servers.store.url;
  }

  private async copyBundles(): Promise<void> {
    const copies = join(this.directory, 'bundles');
    for (const name of ['margay.cjs', 'sandboxd.cjs']) await cp(join(this.bundles, name), join(copies, name));
    this.bundles = copies;
  }

  /** One HTTP request as a stranger's program would send it. */
  async request(
    method: string,
    path: string,
    body?: unknown,
    headers: Record<string, string> = {},
    { gatewayUrl = this.platform.gatewayUrl, signal }: { gatewayUrl?: string; signal?: AbortSignal } = {},
  ): Promise<{ status: number; body: unknown; headers: Headers }> {
    const response = await fetch(`${gatewayUrl}${path}`, {
      method,
      ...(signal ? { signal } : {}),
      headers: {
        'x-api-key': this.platform.apiKey,
        ...(body === undefined ? {} : { 'content-type': 'application/json' }),
        ...headers,
      },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const text = await response.text();
    return {
      status: response.status,
      headers: response.headers,
      body: text === '' ? undefined : (JSON.parse(text) as unknown),
    };
  }

  /** Frames of `/stream` until it ends by itself, or until `takes` says that it is enough: then the connection is cut. */
  async frames(
    sessionId: string,
    { after, query = '', takes = () => true, signal, gatewayUrl = this.platform.gatewayUrl }: FramesOptions = {},
  ): Promise<WireFrame[]> {
    const response = await fetch(`${gatewayUrl}/api/sessions/${sessionId}/stream${query}`, {
      ...(signal ? { signal } : {}),
      headers: { 'x-api-key': this.platform.apiKey, ...(after === undefined ? {} : { 'last-event-id': after }) },
    });
    if (!response.ok || !response.body) throw new Error(`stream answered ${response.status}`);
    const frames: WireFrame[] = [];
    const reader = response.body.getReader();
    const decoder = new TextDecoder();
    let rest = '';
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return frames;
      const blocks = (rest + decoder.decode(value, { stream: true })).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const frame of blocks.flatMap(frameOf)) {
        frames.push(frame);
        if (takes(frame)) continue;
        await reader.cancel();
        return frames;
      }
    }
  }

  /** Stored events of a session, in the texts in which they are stored. */
  async storedFrames(sessionId: string): Promise<string[]> {
    const frames = await this.frames(sessionId, { takes: ({ event }) => event.type !== 'session_state' });
    return frames.filter(({ event }) => event.seq !== undefined).map(({ text }) => text);
  }

  /** A key of another tenant. */
  async foreignKey(): Promise<string> {
    const keys = await KeyRing.load(join(this.directory, 'home', 'keys'), 'gateway');
    const access = grpcClient(accessPb.AccessDefinition, this.platform.serviceAddress('session'), { keys, logger });
    const principal = {
      v: 1 as const,
      iss: 'gateway',
      tenantId: '_platform',
      principal: 'platform:operator',
      role: 'operator' as const,
      scopes: null,
    };
    try {
      const slug = `foreign-${randomBytes(4).toString('hex')}`;
      const { tenantId } = await access.createTenant({ slug, name: 'Foreign' }, { principal });
      return (await access.createKey({ tenantId, label: 'e2e', role: 'owner' }, { principal })).key;
    } finally {
      access.close();
    }
  }
}

/** The frame of an SSE block; none for comments. */
function frameOf(block: string): WireFrame[] {
  const line = block.split('\n').find((field) => field.startsWith('data: '));
  if (line === undefined) return [];
  const text = line.slice('data: '.length);
  return [{ text, event: JSON.parse(text) as WireFrame['event'] }];
}

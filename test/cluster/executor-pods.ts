import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { executorPb, type RunGrant } from '@margay/contracts';
import { generateKeys, grpcClient, KeyRing, systemPrincipal, type GrpcClient } from '@margay/platform';
import { openForward, type Forward } from './forward';
import type { ClusterHarness, Manifest } from './harness';
import { componentLabels, CONTAINER_SECURITY, POD_SECURITY, service } from './pods';

export type ExecutorClient = GrpcClient<typeof executorPb.ExecutorDefinition>;

export interface Heard {
  output: string;
  incarnation: string;
  waits: executorPb.ExecuteWaiting[];
  /** What happened to the workspace. */
  notices: { type: string; payload: unknown }[];
  finished?: executorPb.ExecuteFinished;
}

export interface Call {
  args: object;
  toolId?: string;
  incarnation?: string;
  /** Filled while the call goes on; the same as in what is heard. */
  waits?: executorPb.ExecuteWaiting[];
  callId?: string;
  grant?: Partial<RunGrant>;
}

export interface RunningExecutor {
  client: ExecutorClient;
  metrics: () => Promise<string>;
}

export const TENANT = 'acme';
const DATABASE = 'margay_g0';
export const GRPC_PORT = 9090;
export const MANAGEMENT_PORT = 9464;

/** tool-executor in pods of a namespace, with a store, and sandboxes in another one. */
export class ExecutorPods {
  readonly install: string;
  private folder = '';
  private session!: KeyRing;
  private readonly forwards: Forward[] = [];
  private readonly clients: ExecutorClient[] = [];
  private calls = 0;

  private constructor(
    private readonly cluster: ClusterHarness,
    readonly home: string,
    /** Where sandboxes are. */
    readonly boxes: string,
  ) {
    // As the chart names it, whose policies are made for it.
    this.install = `${home}.margay`;
  }

  /** @param classes sandbox classes, as the operator writes them */
  static async open(cluster: ClusterHarness, classes: object): Promise<ExecutorPods> {
    const pods = new ExecutorPods(cluster, await cluster.namespace('executor'), await cluster.namespace('boxes'));
    pods.folder = await mkdtemp(join(tmpdir(), 'margay-executor-'));
    await generateKeys(pods.folder, ['session', 'tool-executor', 'egress']);
    pods.session = await KeyRing.load(pods.folder, 'session');
    await cluster.apply(...(await pods.surroundings(classes)));
    await cluster.waitFor(pods.home, 'pod/store', 'condition=Ready');
    return pods;
  }

  /** Starts one and connects to it. */
  async start(name: string, environment: Record<string, string> = {}): Promise<RunningExecutor> {
    await this.cluster.apply(this.pod(name, environment));
    await this.cluster.waitFor(this.home, `pod/${name}`, 'condition=Ready').catch(async (cause: unknown) => {
      const said = await this.cluster.kubectl(['-n', this.home, 'logs', name, '--tail=5']);
      throw new Error(`${name} does not start: ${said}`, { cause });
    });
    const forward = await openForward(this.cluster, this.home, name, [GRPC_PORT, MANAGEMENT_PORT]);
    this.forwards.push(forward);
    const [grpc = 0, management = 0] = forward.ports;
    const client = grpcClient(executorPb.ExecutorDefinition, `127.0.0.1:${grpc}`, { keys: this.session });
    this.clients.push(client);
    const metrics = async () => (await fetch(`http://127.0.0.1:${management}/metrics`)).text();
    return { client, metrics };
  }

  /** Where the keys of the services lie. */
  get keysFolder(): string {
    return this.folder;
  }

  get principal() {
    return { principal: systemPrincipal('session', TENANT) };
  }

  /** Runs a shell command to its end as a call of that session. */
  shell(client: ExecutorClient, sessionId: string, command: string, incarnation = ''): Promise<Heard> {
    return this.call(client, sessionId, { args: { command }, incarnation });
  }

  /** Runs one call to its end; a shell command unless it names another tool. */
  async call(client: ExecutorClient, sessionId: string, call: Call): Promise<Heard> {
    const { toolId = 'aider_shell_tool', args, incarnation = '', callId = this.nextCallId(sessionId) } = call;
    const argsJson = JSON.stringify(args);
    const request = { callId, toolId, argsJson, timeoutMs: 0, fromOffset: 0, incarnation };
    const heard: Heard = { output: '', incarnation, waits: call.waits ?? [], notices: [] };
    const grant = await this.grant(sessionId, call.grant);
    for await (const { message } of client.execute(request, { grant })) {
      if (message?.$case === 'started') heard.incarnation = message.value.incarnation;
      if (message?.$case === 'waiting') heard.waits.push(message.value);
      if (message?.$case === 'notice')
        heard.notices.push({ type: message.value.type, payload: JSON.parse(message.value.payloadJson) });
      if (message?.$case === 'output') heard.output += Buffer.from(message.value.bytes).toString();
      if (message?.$case === 'finished') heard.finished = message.value;
    }
    return heard;
  }

  nextCallId(sessionId: string): string {
    this.calls += 1;
    return `${sessionId}.1.0.${this.calls}`;
  }

  async end(client: ExecutorClient, sessionId: string): Promise<void> {
    await client.release({ sessionId }, this.principal);
  }

  /** Names of what carries a session's label. */
  async labelled(sessionId: string): Promise<string[]> {
    const selector = `margay.dev/session-id=${sessionId}`;
    const kinds = 'pods,persistentvolumeclaims,secrets,services';
    const names = await this.cluster.kubectl(['-n', this.boxes, 'get', kinds, '-l', selector, '-o', 'name']);
    return names.split('\n').filter((name) => name !== '');
  }

  /** Names of sandboxes that wait and are ready. */
  async waiting(): Promise<string[]> {
    const selector = '!margay.dev/session-id,margay.dev/sandbox-id';
    const names = await this.cluster.kubectl(['-n', this.boxes, 'get', 'pods', '-l', selector, '-o', 'name']);
    return names.split('\n').filter((name) => name !== '');
  }

  async close(): Promise<void> {
    for (const client of this.clients) client.close();
    for (const forward of this.forwards) forward.close();
    if (this.folder !== '') await rm(this.folder, { recursive: true, force: true });
  }

  /** What a runner shows for a call. */
  grant(sessionId: string, more: Partial<RunGrant> = {}): Promise<string> {
    const grant: RunGrant = {
      v: 1,
      tenantId: TENANT,
      sessionId,
      runId: `${sessionId}-run`,
      epoch: 1,
      storeGeneration: 0,
      principal: 'user:ada',
      workspace: { kind: 'own' },
      ...more,
    };
    return this.session.signRunGrant(grant);
  }

  private async surroundings(classes: object): Promise<Manifest[]> {
    const files = await readdir(this.folder);
    const read = async (name: string) => [name, await readFile(join(this.folder, name), 'utf8')] as const;
    const keys = Object.fromEntries(await Promise.all(files.map(read)));
    const role = { apiGroup: 'rbac.authorization.k8s.io', kind: 'Role', name: 'executor' };
    const resources = ['pods', 'persistentvolumeclaims'];
    const verbs = ['get', 'list', 'watch', 'create', 'patch', 'delete'];
    return [
      { apiVersion: 'v1', kind: 'ServiceAccount', metadata: { name: 'executor', namespace: this.home } },
      {
        apiVersion: 'rbac.authorization.k8s.io/v1',
        kind: 'Role',
        metadata: { name: 'executor', namespace: this.boxes },
        rules: [
          { apiGroups: [''], resources, verbs },
          { apiGroups: [''], resources: ['events', 'resourcequotas'], verbs: ['get', 'list', 'watch'] },
        ],
      },
      {
        apiVersion: 'rbac.authorization.k8s.io/v1',
        kind: 'RoleBinding',
        metadata: { name: 'executor', namespace: this.boxes },
        roleRef: role,
        subjects: [{ kind: 'ServiceAccount', name: 'executor', namespace: this.home }],
      },
      { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'keys', namespace: this.home }, stringData: keys },
      {
        apiVersion: 'v1',
        kind: 'ConfigMap',
        metadata: { name: 'classes', namespace: this.home },
        data: { 'classes.yaml': JSON.stringify(classes) },
      },
      ...this.store(),
    ];
  }

  private store(): Manifest[] {
    const labels = { app: 'store' };
    const container = {
      name: 'store',
      image: this.cluster.image('store'),
      imagePullPolicy: this.cluster.imagePullPolicy,
      ports: [{ containerPort: 27017 }],
      readinessProbe: { tcpSocket: { port: 27017 }, periodSeconds: 1 },
      securityContext: CONTAINER_SECURITY,
      volumeMounts: [
        { name: 'data', mountPath: '/data/db' },
        { name: 'config', mountPath: '/data/configdb' },
        { name: 'tmp', mountPath: '/tmp' },
      ],
    };
    const volumes = ['data', 'config', 'tmp'].map((name) => ({ name, emptyDir: {} }));
    const spec = {
      securityContext: POD_SECURITY,
      automountServiceAccountToken: false,
      containers: [container],
      volumes,
    };
    return [
      { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'store', namespace: this.home, labels }, spec },
      service('store', this.home, [{ port: 27017 }]),
    ];
  }

  private pod(name: string, environment: Record<string, string>): Manifest {
    const env = {
      HOME: '/tmp',
      MARGAY_MANAGEMENT_LISTEN: `0.0.0.0:${MANAGEMENT_PORT}`,
      MARGAY_KEYS_DIR: '/margay/keys',
      MARGAY_TOOL_EXECUTOR_LISTEN: `0.0.0.0:${GRPC_PORT}`,
      MARGAY_HOME: '/tmp/margay',
      MARGAY_MONGODB_URL: 'mongodb://store:27017/?directConnection=true',
      MARGAY_MONGODB_DATABASE: DATABASE,
      MARGAY_SANDBOX_DRIVER: 'kubernetes',
      MARGAY_WORKSPACES_NAMESPACE: this.boxes,
      MARGAY_INSTALL_ID: this.install,
      MARGAY_SANDBOX_IMAGE: this.cluster.image('margay-sandbox'),
      MARGAY_SANDBOX_PULL_POLICY: this.cluster.imagePullPolicy,
      MARGAY_SANDBOX_CLASSES_FILE: '/margay/classes/classes.yaml',
      MARGAY_SANDBOX_POOL_SECONDS: '1',
      MARGAY_SANDBOX_COLLECT_SECONDS: '2',
      MARGAY_SANDBOX_UNPAIRED_SECONDS: '8',
      ...environment,
    };
    const container = {
      name: 'executor',
      image: this.cluster.image('margay'),
      imagePullPolicy: this.cluster.imagePullPolicy,
      args: ['--services', 'tool-executor'],
      env: Object.entries(env).map(([key, value]) => ({ name: key, value })),
      readinessProbe: { httpGet: { path: '/readyz', port: MANAGEMENT_PORT }, periodSeconds: 1 },
      securityContext: CONTAINER_SECURITY,
      volumeMounts: [
        { name: 'tmp', mountPath: '/tmp' },
        { name: 'keys', mountPath: '/margay/keys', readOnly: true },
        { name: 'classes', mountPath: '/margay/classes', readOnly: true },
      ],
    };
    return {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name, namespace: this.home, labels: { app: name, ...componentLabels('tool-executor') } },
      spec: {
        serviceAccountName: 'executor',
        enableServiceLinks: false,
        restartPolicy: 'Never',
        // The first process of a container cannot kill itself, which faults do.
        shareProcessNamespace: true,
        terminationGracePeriodSeconds: 10,
        securityContext: POD_SECURITY,
        containers: [container],
        volumes: [
          { name: 'tmp', emptyDir: {} },
          { name: 'keys', secret: { secretName: 'keys' } },
          { name: 'classes', configMap: { name: 'classes' } },
        ],
      },
    };
  }
}

import { setTimeout as delay } from 'node:timers/promises';
import { runCommand } from './command';
import type { ClusterHarness, Manifest } from './harness';
import { phase } from './phase';
import { nodePod } from './pods';
import { PORTS } from './runs/script';

const CHART = process.env.MARGAY_TEST_CHART ?? 'charts/margay';
const SERVICES = ['gateway', 'session', 'runner', 'toolExecutor', 'mcpPool', 'ideManager', 'channel', 'egress'];
/** Pods that call the gateway; the policy lets the first in. */
const CLIENTS = ['client', 'stranger'];
const PROGRAMS = ['model', 'follow-runs', 'ask'];
const HELM_SECONDS = 420;
const LOOK_MS = 500;

/** Fits beside whatever else the node of a test runs. */
const SMALL_CLASS = {
  cpu: { request: '20m', limit: '1' },
  memory: { request: '64Mi', limit: '512Mi' },
  workspace: '1Gi',
  scratch: '1Gi',
  storage: 'volume',
  egress: 'none',
  warm: { min: 1, max: 1 },
};

/** A tool of the operator's, which needs no sandbox. */
const NOTE_TOOL = {
  name: 'note',
  description: 'Notes a token.',
  parameters: { type: 'object', properties: { token: { type: 'string' } }, required: ['token'] },
  url: `http://model:${PORTS.note}/`,
  effect: 'unkeyed',
};

export type Values = Record<string, unknown>;

/** `helm install` of the chart with the bundled servers, beside a model and clients in pods. */
export class Installation {
  readonly workspaces: string;

  private before: string[] = [];

  private constructor(
    readonly cluster: ClusterHarness,
    readonly namespace: string,
    private readonly own: Values,
  ) {
    this.workspaces = `${namespace}-workspaces`;
  }

  /** Installs it and waits for all pods. */
  static async open(cluster: ClusterHarness, own: Values = {}): Promise<Installation> {
    const installation = new Installation(cluster, await cluster.namespace('install'), own);
    await installation.prepare();
    await installation.phase('helm install, all pods ready', () => installation.helm('install', installation.values()));
    for (const name of CLIENTS) await cluster.apply(installation.client(name));
    for (const name of CLIENTS) await cluster.waitFor(installation.namespace, `pod/${name}`, 'condition=Ready');
    return installation;
  }

  /** Upgrades to these values, laid over those of the installation. */
  async upgrade(changed: Values): Promise<void> {
    await this.phase('helm upgrade', () => this.helm('upgrade', { ...this.values(), ...changed }));
  }

  async rollBack(): Promise<void> {
    const where = ['--namespace', this.namespace, '--wait', '--timeout', `${HELM_SECONDS}s`];
    const args = ['rollback', 'margay', ...where, ...(await this.evenIfScaled())];
    await this.phase('helm rollback', () => this.cluster.helm(args, { timeoutMs: (HELM_SECONDS + 20) * 1_000 }));
  }

  async uninstall(): Promise<void> {
    await this.cluster.helm(['uninstall', 'margay', '--namespace', this.namespace, '--ignore-not-found']);
  }

  async close(): Promise<void> {
    await this.uninstall();
    await this.cluster.kubectl(['delete', 'namespace', this.workspaces, '--ignore-not-found', '--wait=false']);
  }

  /** What there is in the release's namespace beside what was there before the installation. */
  async left(): Promise<string[]> {
    const clients = CLIENTS.map((name) => `pod/${name}`);
    return (await this.objects()).filter((name) => !clients.includes(name) && !this.before.includes(name));
  }

  /** All objects of a namespace. */
  async objects(namespace = this.namespace): Promise<string[]> {
    const kinds = (await this.cluster.kubectl(['api-resources', '--namespaced', '--verbs=list', '-o', 'name'])).split('\n'); // prettier-ignore
    const lasting = kinds
      .filter((kind) => kind !== '' && !/^(events|endpoint)|\.metrics\.k8s\.io$/.test(kind))
      .join(',');
    const names = await this.cluster.kubectl(['-n', namespace, 'get', lasting, '-o', 'name', '--ignore-not-found']);
    return names.split('\n').filter((line) => line !== '').sort(); // prettier-ignore
  }

  /** What a process of the component says at a path of its management port. */
  async management(pod: string, path: string): Promise<string> {
    const script = `fetch('http://127.0.0.1:9464${path}').then((response) => response.text()).then(console.log)`;
    return this.cluster.evaluate(this.namespace, pod, script);
  }

  /** Names of the pods of a component that are not about to end. */
  async pods(component: string): Promise<string[]> {
    const { items } = await this.cluster.get<PodList>(this.namespace, 'pods', '-l', `app.kubernetes.io/instance=margay,app.kubernetes.io/component=${component}`); // prettier-ignore
    return items.filter(({ metadata }) => !metadata.deletionTimestamp).map(({ metadata }) => metadata.name);
  }

  /** Watches from now on. @returns ends it, and names the Deployments of several pods that had no ready one meanwhile */
  watchReadiness(): () => Promise<string[]> {
    const without = new Set<string>();
    let isOver = false;
    const looking = (async () => {
      while (!isOver) {
        const { items } = await this.cluster.get<DeploymentList>(this.namespace, 'deployments');
        for (const { metadata, spec, status } of items)
          if (spec.replicas > 1 && !status.readyReplicas) without.add(metadata.name);
        await delay(LOOK_MS);
      }
    })();
    looking.catch(() => undefined); // who ends it sees it
    return async () => {
      isOver = true;
      await looking;
      return [...without].sort();
    };
  }

  phase<T>(what: string, action: () => Promise<T>): Promise<T> {
    return phase(this.cluster, what, [this.namespace, this.workspaces], action);
  }

  imageValues(version = process.env.MARGAY_TEST_VERSION): Values {
    const repository = this.cluster.image('margay').split(/:(?=[^:]+$)/)[0];
    return { image: { repository, tag: version, pullPolicy: this.cluster.imagePullPolicy } };
  }

  values(): Values {
    const [repository, tag] = this.cluster.image('margay-sandbox').split(/:(?=[^:]+$)/);
    const small = { resources: { requests: { cpu: '50m', memory: '96Mi' } } };
    const bundled = { image: this.cluster.image('store'), replicaSet: '', storage: { className: 'none', size: '1Gi' } };
    return {
      ...Object.fromEntries(SERVICES.map((name) => [name, { ...small, ...(this.own[name] as object | undefined) }])),
      ...this.imageValues(),
      sandbox: { image: { repository, tag }, classes: { default: SMALL_CLASS } },
      workspaces: { namespace: this.workspaces },
      mongodb: { enabled: true, ...bundled, ...small },
      nats: { enabled: true, image: this.cluster.image('nats'), resources: { requests: { cpu: '10m' } } },
      models: { default: 'house', baseUrl: `http://model:${PORTS.model}/v1`, existingSecret: 'model-key' },
      networkPolicy: {
        ingressFrom: [{ podSelector: { matchLabels: { app: 'client' } } }],
        modelPorts: [PORTS.model],
        ...(this.own['networkPolicy'] as object | undefined),
      },
      toolExecutor: { ...small, httpToolsSecret: 'note-tool', httpToolsDirect: true },
      extra: [this.toolToModel()],
    };
  }

  private async helm(verb: 'install' | 'upgrade', values: Values): Promise<void> {
    const where = ['--namespace', this.namespace, '--values', '-', '--wait', '--timeout', `${HELM_SECONDS}s`];
    const options = { input: JSON.stringify(values), timeoutMs: (HELM_SECONDS + 20) * 1_000 };
    const force = verb === 'upgrade' ? await this.evenIfScaled() : [];
    await this.cluster.helm([verb, 'margay', CHART, ...where, ...force], options);
  }

  /** Helm 4 minds replicas that `kubectl scale` has set; before it took them back silently. */
  private async evenIfScaled(): Promise<string[]> {
    const version = await this.cluster.helm(['version', '--short']);
    return version.startsWith('v3') ? [] : ['--force-conflicts'];
  }

  /** The model, its key, the tool of the operator, and the programs of tests. */
  private async prepare(): Promise<void> {
    const { namespace } = this;
    const data = Object.fromEntries(
      await Promise.all(PROGRAMS.map(async (name) => [`${name}.cjs`, await bundle(name)])),
    );
    const programs = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'programs', namespace }, data };
    // Too big for the annotation that `apply` makes.
    await this.cluster.kubectl(['create', '-f', '-'], { input: JSON.stringify(programs) });
    const secret = (name: string, stringData: object) => ({ apiVersion: 'v1', kind: 'Secret', metadata: { name, namespace }, stringData }); // prettier-ignore
    await this.cluster.apply(
      secret('model-key', { 'api-key': 'none-needed' }),
      secret('note-tool', { 'tools.json': JSON.stringify([NOTE_TOOL]) }),
      this.programPod('model', `require('/programs/model.cjs')`),
      {
        apiVersion: 'v1',
        kind: 'Service',
        metadata: { name: 'model', namespace },
        spec: {
          selector: { app: 'model' },
          ports: [PORTS.model, PORTS.note].map((port) => ({ name: `port-${port}`, port })),
        },
      },
    );
    this.before = await this.objects();
  }

  private client(name: string): Manifest {
    const key = { name: 'MARGAY_API_KEY', valueFrom: { secretKeyRef: { name: 'margay-first-key', key: 'key' } } };
    return this.programPod(name, 'setInterval(() => {}, 1e6)', [key]);
  }

  private programPod(name: string, script: string, env: readonly object[] = []): Manifest {
    const mounts = [
      { name: 'tmp', mountPath: '/tmp' },
      { name: 'programs', mountPath: '/programs' },
    ];
    const volumes = [
      { name: 'tmp', emptyDir: {} },
      { name: 'programs', configMap: { name: 'programs' } },
    ];
    const container = { env: [{ name: 'HOME', value: '/tmp' }, ...env], volumeMounts: mounts };
    return nodePod(this.cluster, { name, namespace: this.namespace, script, container, spec: { volumes } }); // prettier-ignore
  }

  /** tool-executor reaches nothing that the chart doesn't name. */
  private toolToModel(): Manifest {
    const peer = (labels: object) => ({ podSelector: { matchLabels: labels } });
    return {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata: { name: 'note-tool' },
      spec: {
        ...peer({ 'app.kubernetes.io/instance': 'margay', 'app.kubernetes.io/component': 'tool-executor' }),
        policyTypes: ['Egress'],
        egress: [{ to: [peer({ app: 'model' })], ports: [{ port: PORTS.note }] }],
      },
    };
  }
}

interface DeploymentList {
  items: { metadata: { name: string }; spec: { replicas: number }; status: { readyReplicas?: number } }[];
}

interface PodList {
  items: { metadata: { name: string; deletionTimestamp?: string } }[];
}

/** A program of `programs/` as one file. By its command: inside jest esbuild finds another `Uint8Array`. */
function bundle(name: string): Promise<string> {
  const options = ['--bundle', '--minify', '--platform=node', '--target=node24', '--conditions=@margay/source'];
  return runCommand('node_modules/.bin/esbuild', [`test/cluster/programs/${name}.ts`, ...options]);
}

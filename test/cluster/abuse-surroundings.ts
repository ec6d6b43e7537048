import { parseAllDocuments } from 'yaml';
import { egressPod, PROXY_PORT } from './egress-pod';
import { ExecutorPods, GRPC_PORT, type ExecutorClient, type RunningExecutor } from './executor-pods';
import type { ClusterHarness, Manifest } from './harness';
import { componentLabels, nodePod, service } from './pods';

/** Where clouds keep the credentials of a node; a node of tools/testcluster has that address, too. */
export const LINK_LOCAL = '169.254.169.254';
/** Its policy names one host; all others may go wherever it is public. */
export const NARROW_TENANT = 'narrow';

const CLASS = {
  cpu: { request: '50m', limit: '1' },
  memory: { request: '64Mi', limit: '512Mi' },
  workspace: '512Mi',
  scratch: '512Mi',
  storage: 'snapshot',
  egress: 'proxy',
  warm: { min: 0, max: 0 },
};

/** Answers with what it was asked, remembers it, and leads astray; on 8443 it only tells whether it heard anything. */
const WEB = `const heard = [];
  require('node:http').createServer((request, response) => {
    if (request.url === '/heard') return response.end(heard.join('\\n'));
    heard.push(request.url + ' ' + request.headers.host);
    if (request.url === '/astray') return response.writeHead(302, { location: 'http://inner.test/' }).end();
    response.end('hello ' + request.headers.host);
  }).listen(8080);
  require('node:net').createServer((socket) => {
    socket.on('error', () => undefined).once('data', () => { heard.push('raw'); socket.end('HEARD'); });
  }).listen(8443);`;

/** A name server: a table of names, of which turning.test stands for another address from its second look-up on. */
const NAMES = `const [web, inner] = process.argv.slice(1);
  const table = { 'web.test': [web], 'inner.test': [inner], 'mixed.test': [web, inner] };
  let turns = 0;
  const socket = require('node:dgram').createSocket('udp4');
  socket.on('message', (query, from) => {
    const labels = [];
    let at = 12;
    for (let length; (length = query[at]) > 0; at += length + 1) labels.push(query.toString('latin1', at + 1, at + 1 + length));
    const question = query.subarray(12, at + 5);
    const name = labels.join('.').toLowerCase();
    const isAddress = query[at + 2] === 1;
    console.log(name);
    const known = name === 'turning.test' ? [isAddress && turns++ === 0 ? web : inner] : table[name];
    const addresses = isAddress && known ? known : [];
    const header = Buffer.from([query[0], query[1], 0x81, known ? 0x80 : 0x83, 0, 1, 0, addresses.length, 0, 0, 0, 0]);
    const records = addresses.map((ip) => Buffer.from([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, ...ip.split('.').map(Number)]));
    socket.send(Buffer.concat([header, question, ...records]), from.port, from.address);
  }).bind(5353);`;

/** A metadata service and a node-local name server. Who has the port now may be leaving it, and is as good until then. */
const NODE_SERVICES = `const listening = (server, port) => {
    const listen = () => server.listen(port, '${LINK_LOCAL}');
    server.on('error', () => setTimeout(listen, 500));
    listen();
  };
  listening(require('node:http').createServer((_, response) => response.end('node-credentials')), 80);
  listening(require('node:net').createServer((socket) => socket.end()), 53);
  const names = require('node:dgram').createSocket('udp4').on('error', () => undefined);
  names.on('message', (query, from) => names.send(query, from.port, from.address)).bind(53, '${LINK_LOCAL}');`;

const LISTENING = `for (const port of [4222, 8080]) require('node:net').createServer((socket) => socket.end('here')).listen(port);`;

/**
 * Sandboxes under the chart's own network policies, with a proxy, servers to attack, and a pod that nothing guards: what
 * is refused to a sandbox must succeed there, or the test would prove nothing.
 */
export class AbuseSurroundings {
  client!: ExecutorClient;
  executor!: RunningExecutor;
  /** Addresses of services by name. */
  readonly addresses: Record<string, string> = {};
  private unguardedNamespace = '';

  private constructor(
    private readonly cluster: ClusterHarness,
    readonly pods: ExecutorPods,
  ) {}

  static async open(cluster: ClusterHarness): Promise<AbuseSurroundings> {
    const world = new AbuseSurroundings(cluster, await ExecutorPods.open(cluster, { default: CLASS }));
    await world.start();
    return world;
  }

  close(): Promise<void> {
    return this.pods.close();
  }

  /** Runs a program of the sandbox's image in the pod without guards. */
  unguarded(command: readonly string[], input: string): Promise<string> {
    return this.cluster.exec(this.unguardedNamespace, 'unguarded', command, { input });
  }

  /** What the name server was asked for. */
  async lookedUp(): Promise<string[]> {
    return (await this.cluster.kubectl(['-n', this.pods.home, 'logs', 'names'])).split('\n');
  }

  private async start(): Promise<void> {
    const { cluster, pods } = this;
    this.unguardedNamespace = await cluster.namespace('unguarded', {
      'pod-security.kubernetes.io/enforce': 'privileged',
    });
    await cluster.apply(
      ...this.services(),
      nodePod(cluster, { name: 'web', namespace: pods.home, script: WEB }),
      nodePod(cluster, { name: 'broker', namespace: pods.home, script: LISTENING }),
      nodePod(cluster, { name: 'ide', namespace: pods.boxes, script: LISTENING }),
      ...this.unguardedPods(),
    );
    for (const name of ['web', 'names', 'egress', 'one', 'store'])
      this.addresses[name] = await this.read(pods.home, `service/${name}`, '{.spec.clusterIP}');
    await cluster.apply(this.namesPod(), ...this.proxy(), ...(await this.networkPolicies()));
    this.executor = await pods.start('one', { MARGAY_EGRESS_ADDRESS: `egress:${PROXY_PORT}` });
    this.client = this.executor.client;
    const needed = { [pods.home]: ['web', 'names', 'egress', 'broker'], [pods.boxes]: ['ide'] };
    for (const [namespace, names] of Object.entries(needed)) {
      for (const name of names) await cluster.waitFor(namespace, `pod/${name}`, 'condition=Ready');
    }
    for (const name of ['unguarded', 'node-services'])
      await cluster.waitFor(this.unguardedNamespace, `pod/${name}`, 'condition=Ready');
    for (const name of ['broker', 'ide'])
      this.addresses[name] = await this.podAddress(name === 'ide' ? pods.boxes : pods.home, name);
  }

  podAddress(namespace: string, pod: string): Promise<string> {
    return this.read(namespace, `pod/${pod}`, '{.status.podIP}');
  }

  read(namespace: string, what: string, path: string): Promise<string> {
    return this.cluster.kubectl(['-n', namespace, 'get', what, `-o=jsonpath=${path}`]);
  }

  /** Beside that of the store, which is there. */
  private services(): Manifest[] {
    const ports = {
      web: [
        { name: 'http', port: 80, targetPort: 8080 },
        { name: 'raw', port: 443, targetPort: 8443 },
      ],
      names: [{ port: 53, targetPort: 5353, protocol: 'UDP' }],
      egress: [{ port: PROXY_PORT }],
      one: [{ port: GRPC_PORT }],
    };
    return Object.entries(ports).map(([name, own]) => service(name, this.pods.home, own));
  }

  private namesPod(): Manifest {
    const { web = '', one = '' } = this.addresses;
    const container = { command: ['/usr/bin/node', '-e', NAMES, web, one] };
    return nodePod(this.cluster, { name: 'names', namespace: this.pods.home, script: '', container });
  }

  private proxy(): Manifest[] {
    const { cluster, pods, addresses } = this;
    const reachable = ['web.test', 'turning.test', 'mixed.test'];
    const cidr = `${addresses['web']}/32`;
    const policy = {
      maxMode: 'public',
      private: reachable.map((host) => ({ host, cidr, ports: [80, 443] })),
      policy: { mode: 'public', rules: [{ id: 'web', hosts: [...reachable, 'inner.test'], ports: [80, 443] }] },
      tenants: { [NARROW_TENANT]: { rules: [{ id: 'web', hosts: ['web.test'], ports: [80] }] } },
    };
    const spec = {
      dnsPolicy: 'None',
      dnsConfig: { nameservers: [addresses['names']] },
      hostAliases: [{ ip: addresses['one'], hostnames: ['one'] }],
    };
    return egressPod(cluster, pods, { policy, spec });
  }

  /** The chart's, and the way to the proxy. */
  private async networkPolicies(): Promise<Manifest[]> {
    const { cluster, pods } = this;
    const bundled = { enabled: true, storage: { className: 'none', size: '1Gi' } };
    const values = {
      workspaces: { namespace: pods.boxes, create: false },
      mongodb: bundled,
      nats: { enabled: true },
    };
    const args = ['template', 'margay', 'charts/margay', '--namespace', pods.home, '--values', '-'];
    const text = await cluster.helm([...args, '--show-only', 'templates/workspaces.yaml'], {
      input: JSON.stringify(values),
    });
    const objects = parseAllDocuments(text).map((document) => document.toJS() as Manifest | null);
    const policies = objects.filter((object) => object?.kind === 'NetworkPolicy') as Manifest[];
    return [...policies, this.wayOut(), this.openIde()];
  }

  /** So that it is the sandbox's side that keeps it from an IDE, which others reach. */
  private openIde(): Manifest {
    return {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata: { name: 'to-ide', namespace: this.pods.boxes },
      spec: { podSelector: { matchLabels: { app: 'ide' } }, policyTypes: ['Ingress'], ingress: [{}] },
    };
  }

  private wayOut(): Manifest {
    const { home, boxes } = this.pods;
    const egress = {
      namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': home } },
      podSelector: { matchLabels: componentLabels('egress') },
    };
    return {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata: { name: 'to-egress', namespace: boxes },
      spec: {
        podSelector: { matchLabels: { 'margay.dev/egress': 'proxy' } },
        policyTypes: ['Egress'],
        egress: [{ to: [egress], ports: [{ port: PROXY_PORT }] }],
      },
    };
  }

  private unguardedPods(): Manifest[] {
    const { cluster, unguardedNamespace: namespace } = this;
    const asRoot = { securityContext: { runAsUser: 0, privileged: true } };
    const canary = { env: [{ name: 'CANARY', value: '-----BEGIN PRIVATE KEY-----' }] };
    return [
      nodePod(cluster, {
        name: 'node-services',
        namespace,
        script: NODE_SERVICES,
        container: asRoot,
        spec: { hostNetwork: true, securityContext: {} },
      }),
      nodePod(cluster, {
        name: 'unguarded',
        namespace,
        script: '',
        container: {
          ...asRoot,
          ...canary,
          image: cluster.image('margay-sandbox'),
          command: ['/usr/bin/sleep', '1000'],
        },
        spec: { automountServiceAccountToken: true, hostPID: true, securityContext: {} },
      }),
    ];
  }
}

import { metadataPod, openEdges, probePod, webPod, type Source, type Target } from './edge-probes';
import { describeWith } from './features';
import { ClusterHarness, type Manifest } from './harness';
import { componentLabels, nodePod, service } from './pods';

jest.setTimeout(240_000);

const CHART = process.env.MARGAY_TEST_CHART ?? 'charts/margay';
const LINK_LOCAL = '169.254.169.254';
const MODEL_PORT = 8_000;
const COMPONENTS = ['agent-runner', 'channel', 'egress', 'gateway', 'ide-manager', 'mcp-pool', 'session', 'tool-executor']; // prettier-ignore
const PORTS: Record<string, number[]> = {
  gateway: [8080],
  session: [9090],
  'tool-executor': [9091],
  'mcp-pool': [9092],
  'ide-manager': [9093],
  channel: [9094],
  egress: [3128, 3129],
  mongodb: [27017],
  nats: [4222],
};

/** Every connection that there may be. What a hook may do ends with it: none is left to pods that look like `bootstrap`. */
const EDGES: Record<string, string[]> = {
  'agent-runner': ['session:9090', 'tool-executor:9091', 'mcp-pool:9092', 'model:8000'],
  channel: ['session:9090'],
  check: ['gateway:8080'],
  client: ['gateway:8080'],
  egress: ['session:9090', 'tool-executor:9091', 'nats:4222', 'web:8080'],
  gateway: ['session:9090', 'tool-executor:9091', 'mcp-pool:9092', 'ide-manager:9093', 'channel:9094', 'nats:4222'],
  'ide-manager': ['session:9090', 'tool-executor:9091'],
  'mcp-pool': ['session:9090', 'tool-executor:9091'],
  monitoring: COMPONENTS.map((name) => `${name}:9464`),
  session: ['tool-executor:9091', 'mongodb:27017', 'nats:4222'],
  'tool-executor': [
    'session:9090',
    'egress:3129',
    'mongodb:27017',
    'nats:4222',
    'sandbox:7777',
    'closed-sandbox:7777',
    'api:6443',
  ],
  sandbox: ['egress:3128'],
};
const WITH_DNS = [...COMPONENTS, 'check'];

/** Asks the outside from a sandbox, then by the operator's tool, and answers with what it was told. */
const MODEL = `
  const command = "curl -sS -m 10 http://$WEB/; echo; curl -s -m 10 -o /dev/null -w '%{http_code}\\\\n' http://elsewhere.example/";
  const ask = (web) => JSON.stringify({ command: command.replace('$WEB', web) });
  const chunk = (delta, finish_reason = null) => ({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'house', choices: [{ index: 0, delta, finish_reason }] });
  require('node:http').createServer(async (request, response) => {
    if (request.method === 'GET') return response.end(JSON.stringify({ object: 'list', data: [{ id: 'house', object: 'model' }] }));
    let text = '';
    for await (const part of request) text += part;
    const told = JSON.parse(text).messages.filter(({ role }) => role === 'tool').map(({ content }) => content);
    const next = [{ name: 'aider_shell_tool', arguments: ask(process.argv[1]) }, { name: 'note', arguments: '{}' }][told.length];
    const call = { index: 0, id: 'call_' + told.length, type: 'function', function: next };
    const parts = next ? [[{ tool_calls: [call] }], [{}, 'tool_calls']] : [[{ content: 'It said: ' + JSON.stringify(told) }], [{}, 'stop']];
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const part of [[{ role: 'assistant' }], ...parts]) response.write('data: ' + JSON.stringify(chunk(...part)) + '\\n\\n');
    response.end('data: [DONE]\\n\\n');
  }).listen(${MODEL_PORT});`;

const SMALL = { replicas: 1, resources: { requests: { cpu: '10m', memory: '64Mi' } } };
const CLASS = {
  cpu: { request: '10m', limit: '1' },
  memory: { request: '64Mi', limit: '512Mi' },
  workspace: '64Mi',
  scratch: '64Mi',
  storage: 'snapshot',
  warm: { min: 1, max: 1 },
};

interface Pods {
  items: { metadata: { name: string; labels: Record<string, string> }; status: { podIP: string } }[];
}

describeWith('networkpolicy')('connections of an installed chart', () => {
  const cluster = new ClusterHarness();
  let namespace: string;
  let workspaces: string;
  let abroad: string;
  let web: string;

  beforeAll(async () => {
    namespace = await cluster.namespace('edges');
    workspaces = `${namespace}-workspaces`;
    abroad = await cluster.namespace('abroad', { 'pod-security.kubernetes.io/enforce': 'privileged' });
    web = `web.${namespace}.svc.cluster.local`;
    await cluster.apply(...surroundings());
    const webAddress = await read(namespace, 'service/web', '{.spec.clusterIP}');
    const install = ['install', 'margay', CHART, '--namespace', namespace, '--values', '-', '--wait'];
    await cluster.helm([...install, '--timeout', '180s'], {
      input: JSON.stringify(values(webAddress)),
      timeoutMs: 200_000,
    });
    await cluster.apply(client());
    for (const pod of ['web', 'model', 'client']) await cluster.waitFor(namespace, `pod/${pod}`, 'condition=Ready');
  });
  afterAll(async () => {
    await cluster.helm(['uninstall', 'margay', '--namespace', namespace, '--ignore-not-found']);
    await cluster.kubectl(['delete', 'namespace', workspaces, '--ignore-not-found', '--wait=false']);
    await cluster.stop();
  });

  const read = (where: string, what: string, path: string) =>
    cluster.kubectl(['-n', where, 'get', what, `-o=jsonpath=${path}`]);

  const surroundings = (): Manifest[] => [
    nodePod(cluster, { name: 'model', namespace, script: '', container: { command: ['/usr/bin/node', '-e', MODEL, web] } }), // prettier-ignore
    service('model', namespace, [{ port: MODEL_PORT }]),
    webPod(cluster, namespace),
    service('web', namespace),
    metadataPod(cluster, abroad, LINK_LOCAL),
    { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'model-key', namespace }, stringData: { 'api-key': 'none' } },
    { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'tools', namespace }, stringData: { 'tools.json': JSON.stringify([note()]) } }, // prettier-ignore
  ];
  const note = () => ({ name: 'note', description: 'Notes it.', parameters: { type: 'object' }, url: `http://${web}/note`, effect: 'unkeyed' }); // prettier-ignore

  const imageValues = (name: 'margay' | 'margay-sandbox') => {
    const [repository, tag] = cluster.image(name).split(/:(?=[^:]+$)/);
    return { repository, tag };
  };
  const peer = (app: string) => [{ podSelector: { matchLabels: { app } } }];
  const values = (webAddress: string) => ({
    ...Object.fromEntries(['gateway', 'session', 'mcpPool', 'ideManager', 'channel'].map((name) => [name, SMALL])), // prettier-ignore
    toolExecutor: { ...SMALL, httpToolsSecret: 'tools' },
    runner: { resources: SMALL.resources, pools: [{ name: 'default', replicas: 1, slots: 10 }] },
    image: { ...imageValues('margay'), pullPolicy: cluster.imagePullPolicy },
    sandbox: {
      image: imageValues('margay-sandbox'),
      classes: { default: { ...CLASS, egress: 'proxy' }, closed: { ...CLASS, egress: 'none' } },
    },
    workspaces: { namespace: workspaces },
    mongodb: { enabled: true, image: cluster.image('store'), replicaSet: '', storage: { className: 'none', size: '1Gi' }, resources: SMALL.resources }, // prettier-ignore
    nats: { enabled: true, image: cluster.image('nats'), resources: { requests: { cpu: '10m' } } },
    models: { default: 'house', baseUrl: `http://model:${MODEL_PORT}/v1`, existingSecret: 'model-key' },
    egress: {
      ...SMALL,
      private: [{ host: web, cidr: `${webAddress}/32`, ports: [80] }],
      policy: { rules: [{ id: 'web', hosts: [web], ports: [80] }] },
    },
    networkPolicy: {
      ingressFrom: peer('client'),
      monitoringFrom: peer('monitoring'),
      modelCidrs: [],
      modelTo: peer('model'),
      modelPorts: [MODEL_PORT],
      egressTo: peer('web'),
      egressPorts: [8080],
    },
  });

  const client = () => {
    const key = { name: 'MARGAY_API_KEY', valueFrom: { secretKeyRef: { name: 'margay-first-key', key: 'key' } } };
    const container = { env: [{ name: 'HOME', value: '/tmp' }, key], volumeMounts: [{ name: 'tmp', mountPath: '/tmp' }] }; // prettier-ignore
    const spec = { volumes: [{ name: 'tmp', emptyDir: {} }] };
    return nodePod(cluster, { name: 'client', namespace, script: 'setInterval(() => {}, 1e6)', container, spec });
  };

  it('an agent and a tool of the operator reach what they may through the proxy, and nothing else', async () => {
    const run = ['/usr/bin/node', '/opt/margay/cli.cjs', '--url', 'http://margay-gateway', '--quiet', 'run', 'Look outside.']; // prettier-ignore
    const answer = await cluster.exec(namespace, 'client', run);
    expect(answer).toMatch(/hello from the web.*403.*hello from the web/s);
  });

  it('pain 36: every listed edge connects and no other one, metadata and DNS of sandboxes included', async () => {
    const components = [...COMPONENTS, 'check', 'bootstrap', 'nats'];
    const strangers = { client: { app: 'client' }, monitoring: { app: 'monitoring' }, stranger: { app: 'stranger' } };
    await cluster.apply(
      ...components.map((name) => probePod(cluster, `probe-${name}`, namespace, componentLabels(name))),
      ...Object.entries(strangers).map(([name, labels]) => probePod(cluster, `probe-${name}`, namespace, labels)),
      // Of another namespace, and so none of ours.
      probePod(cluster, 'probe-gateway', abroad, componentLabels('gateway')),
      probePod(cluster, 'open', abroad, { app: 'open' }),
    );
    const own = [...components, ...Object.keys(strangers)].map((name): Source => ({ name, namespace, pod: `probe-${name}` })); // prettier-ignore
    const foreign = { name: 'gateway-abroad', namespace: abroad, pod: 'probe-gateway' };
    const free = { name: 'open', namespace: abroad, pod: 'open' };
    for (const { namespace: where, pod } of [...own, foreign, free])
      await cluster.waitFor(where, `pod/${pod}`, 'jsonpath={.status.phase}=Running');
    const { sandboxes, targets } = await ends();
    // What can't be reached from anywhere would prove nothing.
    const outside = ['api:6443', 'dns:53', 'dns:53/udp', 'metadata:80', 'model:8000', 'web:8080'];
    await cluster.until('the surroundings', async () =>
      expect(await openEdges(cluster, [free], targets)).toEqual(outside.map((target) => `open → ${target}`)),
    );
    const listed = Object.entries(EDGES).flatMap(([from, all]) => all.map((to) => `${from} → ${to}`));
    const dns = WITH_DNS.flatMap((name) => ['dns:53', 'dns:53/udp'].map((target) => `${name} → ${target}`));
    const unguarded = Object.keys(strangers).flatMap((name) => outside.map((target) => `${name} → ${target}`));
    const wanted = [...listed, ...dns, ...unguarded, ...outside.map((target) => `gateway-abroad → ${target}`)].sort();
    await cluster.until(
      'exactly the listed edges',
      async () => expect(await openEdges(cluster, [...own, foreign, ...sandboxes], targets)).toEqual(wanted),
      60_000,
    );
    // Last of all: the store's Service would lead to it, and session away from the store.
    await cluster.apply(probePod(cluster, 'probe-mongodb', namespace, componentLabels('mongodb')));
    await cluster.waitFor(namespace, 'pod/probe-mongodb', 'jsonpath={.status.phase}=Running');
    const store = { name: 'mongodb', namespace, pod: 'probe-mongodb' };
    await cluster.until('no edge from the store', async () =>
      expect(await openEdges(cluster, [store], targets)).toEqual([]),
    );
  });

  /** The sandboxes that wait for sessions, and all that somebody could want to reach. */
  async function ends(): Promise<{ sandboxes: Source[]; targets: Target[] }> {
    const warm = await cluster.until(
      'sandboxes of both classes',
      async () => {
        const { items } = await cluster.get<Pods>(workspaces, 'pods', '--field-selector=status.phase=Running');
        const ofClass = (name: string) => items.find(({ metadata }) => metadata.labels['margay.dev/class'] === name && !metadata.labels['margay.dev/session-id']); // prettier-ignore
        const [sandbox, closed] = [ofClass('default'), ofClass('closed')];
        if (!sandbox?.status.podIP || !closed?.status.podIP) throw new Error('not yet');
        return { sandbox, 'closed-sandbox': closed };
      },
      60_000,
    );
    const { items } = await cluster.get<Pods>(namespace, 'pods', '--field-selector=status.phase=Running');
    const real = (component: string) => items.find(({ metadata }) => metadata.labels['app.kubernetes.io/component'] === component && !metadata.name.startsWith('probe-')); // prettier-ignore
    const target = (name: string, host: string | undefined, port: number): Target => ({ name: `${name}:${port}`, host: host ?? '', port }); // prettier-ignore
    const ofComponents = [...COMPONENTS, 'mongodb', 'nats'].flatMap((name) => [...(PORTS[name] ?? []), ...(COMPONENTS.includes(name) ? [9464] : [])].map((port) => target(name, real(name)?.status.podIP, port))); // prettier-ignore
    const addressOf = (pod: string) => items.find(({ metadata }) => metadata.name === pod)?.status.podIP;
    const api = JSON.parse(await cluster.kubectl(['-n', 'default', 'get', 'endpointslice', 'kubernetes', '-o', 'json'])) as { endpoints: { addresses: string[] }[]; ports: { port: number }[] }; // prettier-ignore
    const resolver = await read('kube-system', 'service/kube-dns', '{.spec.clusterIP}');
    const outside: Target[] = [
      { name: 'api:6443', host: api.endpoints[0]?.addresses[0] ?? '', port: api.ports[0]?.port ?? 0 },
      target('dns', resolver, 53),
      { name: 'dns:53/udp', host: resolver, port: 53, isUdp: true },
      target('metadata', LINK_LOCAL, 80),
      target('model', addressOf('model'), MODEL_PORT),
      target('web', addressOf('web'), 8080),
    ];
    const boxes = Object.entries(warm);
    return {
      sandboxes: boxes.map(([name, { metadata }]) => ({ name, namespace: workspaces, pod: metadata.name })),
      targets: [...ofComponents, ...boxes.map(([name, { status }]) => target(name, status.podIP, 7777)), ...outside],
    };
  }
});

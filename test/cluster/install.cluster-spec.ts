import { ClusterHarness, refusal, type Manifest } from './harness';
import { nodePod } from './pods';

jest.setTimeout(300_000);

const CHART = 'charts/margay';
const COMPONENTS = ['agent-runner', 'channel', 'gateway', 'ide-manager', 'mcp-pool', 'mongodb', 'nats', 'session', 'tool-executor']; // prettier-ignore
const MODEL_PORT = 8000;
/** An enforcer drops or refuses. */
const CLOSED = /^(cut|ECONNREFUSED|EHOSTUNREACH|ETIMEDOUT)$/;

/** An OpenAI-compatible server: it lists the workspace first, then answers with one sentence, word by word. */
const MODEL = `
  const words = 'All is well in the cluster.'.split(/(?= )/).map((content) => [{ content }]);
  const look = { index: 0, id: 'call_1', type: 'function', function: { name: 'aider_list_dir_tool', arguments: '{}' } };
  const chunk = (delta, finish_reason = null) => ({ id: 'c', object: 'chat.completion.chunk', created: 1, model: 'house', choices: [{ index: 0, delta, finish_reason }] });
  const answer = (hasLooked) => hasLooked ? [...words, [{}, 'stop']] : [[{ tool_calls: [look] }], [{}, 'tool_calls']];
  require('node:http').createServer(async (request, response) => {
    if (request.method === 'GET') return response.end(JSON.stringify({ object: 'list', data: [{ id: 'house', object: 'model' }] }));
    let text = '';
    for await (const part of request) text += part;
    const hasLooked = JSON.parse(text).messages.some(({ role }) => role === 'tool');
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    for (const parts of [[{ role: 'assistant' }], ...answer(hasLooked)]) response.write('data: ' + JSON.stringify(chunk(...parts)) + '\\n\\n');
    response.end('data: [DONE]\\n\\n');
  }).listen(${MODEL_PORT});`;

/** Asks the gateway again and again until a file says stop; prints how often it got which answer. */
const ASKING = `
  const counts = {};
  const ask = () => fetch('http://margay-gateway/healthz', { signal: AbortSignal.timeout(5000) }).then(({ status }) => status, (error) => error.cause?.code ?? error.name);
  (async () => {
    while (!require('node:fs').existsSync('/tmp/stop')) {
      const answer = await ask();
      counts[answer] = (counts[answer] ?? 0) + 1;
      await new Promise((go) => setTimeout(go, 50));
    }
    console.log(JSON.stringify(counts));
  })();`;

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

interface Pods {
  items: {
    metadata: { name: string; labels: Record<string, string> };
    status: { containerStatuses?: { restartCount: number }[] };
  }[];
}

describe('helm install with the bundled servers', () => {
  const cluster = new ClusterHarness();
  let namespace: string;
  let workspaces: string;
  let install: string[];

  beforeAll(async () => {
    namespace = await cluster.namespace('install');
    workspaces = `${namespace}-workspaces`;
    await cluster.apply(...model());
    install = [CHART, '--namespace', namespace, '--values', '-', '--wait', '--timeout', '180s'];
    await cluster.helm(['install', 'margay', ...install], { input: JSON.stringify(values()), timeoutMs: 200_000 });
    await cluster.apply(client('client', { app: 'client' }, firstKey), client('stranger', { app: 'stranger' }, []));
    for (const pod of ['client', 'stranger']) await cluster.waitFor(namespace, `pod/${pod}`, 'condition=Ready');
  });
  afterAll(async () => {
    await cluster.helm(['uninstall', 'margay', '--namespace', namespace, '--ignore-not-found']);
    await cluster.kubectl(['delete', 'namespace', workspaces, '--ignore-not-found', '--wait=false']);
    await cluster.stop();
  });

  const [repository, tag] = cluster.image('margay').split(/:(?=[^:]+$)/);
  const [sandboxRepository, sandboxTag] = cluster.image('margay-sandbox').split(/:(?=[^:]+$)/);
  const small = { resources: { requests: { cpu: '10m', memory: '96Mi' } } };
  const values = () => ({
    image: { repository, tag, pullPolicy: cluster.imagePullPolicy },
    sandbox: { image: { repository: sandboxRepository, tag: sandboxTag }, classes: { default: SMALL_CLASS } },
    workspaces: { namespace: workspaces },
    mongodb: {
      enabled: true,
      image: cluster.image('store'),
      replicaSet: '',
      storage: { className: 'none', size: '1Gi' },
      ...small,
    },
    nats: { enabled: true, image: cluster.image('nats'), resources: { requests: { cpu: '10m' } } },
    models: { default: 'house', baseUrl: `http://model:${MODEL_PORT}/v1`, existingSecret: 'model-key' },
    networkPolicy: { ingressFrom: [{ podSelector: { matchLabels: { app: 'client' } } }], modelPorts: [MODEL_PORT] },
    ...Object.fromEntries(
      ['gateway', 'session', 'runner', 'toolExecutor', 'mcpPool', 'ideManager', 'channel'].map((name) => [name, small]),
    ),
  });

  const model = (): Manifest[] => [
    nodePod(cluster, { name: 'model', namespace, script: MODEL }),
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'model', namespace },
      spec: { selector: { app: 'model' }, ports: [{ port: MODEL_PORT }] },
    },
    {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'model-key', namespace },
      stringData: { 'api-key': 'none-needed' },
    },
  ];

  const firstKey = [{ name: 'MARGAY_API_KEY', valueFrom: { secretKeyRef: { name: 'margay-first-key', key: 'key' } } }];
  const client = (name: string, labels: Record<string, string>, env: object[]) =>
    nodePod(cluster, { name, namespace, labels, script: 'setInterval(() => {}, 1e6)', container: { env: [{ name: 'HOME', value: '/tmp' }, ...env], volumeMounts: [{ name: 'tmp', mountPath: '/tmp' }] }, spec: { volumes: [{ name: 'tmp', emptyDir: {} }] } }); // prettier-ignore

  const secretData = async () => {
    const { items } = await cluster.get<{ items: { metadata: { name: string }; data: object }[] }>(namespace, 'secret', '-l', 'app.kubernetes.io/managed-by=margay'); // prettier-ignore
    return Object.fromEntries(items.map(({ metadata, data }) => [metadata.name, data]));
  };
  /** What a pod finds at the other end: `open`, or why not. */
  const dial = (pod: string, host: string, port: number) =>
    cluster.evaluate(
      namespace,
      pod,
      `const socket = require('node:net').connect(${port}, '${host}');
      const tell = (word) => { console.log(word); process.exit(); };
      socket.on('connect', () => tell('open')).on('error', (error) => tell(error.code)); setTimeout(tell, 2500, 'cut');`,
    );

  it('brings up all pods under Pod Security restricted, none of them restarted', async () => {
    const { items } = await cluster.get<Pods>(namespace, 'pods', '-l', 'app.kubernetes.io/instance=margay');
    const running = items.filter(({ metadata }) => metadata.labels['app.kubernetes.io/component'] !== 'bootstrap');
    expect([...new Set(running.map(({ metadata }) => metadata.labels['app.kubernetes.io/component']))].sort()).toEqual(COMPONENTS); // prettier-ignore
    const restarts = running.map(({ metadata, status }) => [
      metadata.name,
      status.containerStatuses?.[0]?.restartCount,
    ]);
    expect(restarts.filter(([, count]) => count !== 0)).toEqual([]);
    for (const name of [namespace, workspaces])
      expect(await cluster.kubectl(['get', 'namespace', name, '-o', 'jsonpath={.metadata.labels}'])).toContain('"pod-security.kubernetes.io/enforce":"restricted"'); // prettier-ignore
  });

  it('passes helm test: healthy, a session made and ended', async () => {
    const output = await cluster.helm(['test', 'margay', '--namespace', namespace, '--logs', '--timeout', '60s']);
    expect(output).toMatch(/session \w+ made\nsession \w+ ended/);
  });

  it('answers a query through the Service, by a model and a tool in a sandbox', async () => {
    const answer = await cluster.exec(namespace, 'client', ['/usr/bin/node', '/opt/margay/cli.cjs', '--url', 'http://margay-gateway', '--quiet', 'run', 'How is the cluster?']); // prettier-ignore
    expect(answer.trim()).toBe('All is well in the cluster.');
    const claimed = await cluster.get<Pods>(workspaces, 'pods', '-l', 'margay.dev/session-id');
    expect(claimed.items).toHaveLength(1);
  });

  it('lets nobody else reach gateway, services, store and broker', async () => {
    expect(await dial('client', 'margay-gateway', 80)).toBe('open');
    const closed = { 'margay-gateway': 80, 'margay-session': 9090, 'margay-tool-executor': 9091, 'margay-mongodb': 27017, 'margay-nats': 4222, 'margay-gateway-management': 9464 }; // prettier-ignore
    for (const [host, port] of Object.entries(closed)) expect([host, await dial('stranger', host, port)]).toEqual([host, expect.stringMatching(CLOSED)]); // prettier-ignore
  });

  it('gives the rights of sandboxes to tool-executor, and nothing to anybody else', async () => {
    const may = (account: string, verb: string, what: string, where: string) =>
      cluster.kubectl(['auth', 'can-i', verb, what, '-n', where, `--as=system:serviceaccount:${namespace}:margay-${account}`]).then((text) => text.trim(), () => 'no'); // prettier-ignore
    expect(await may('tool-executor', 'create', 'pods', workspaces)).toBe('yes');
    expect(await may('tool-executor', 'create', 'pods', namespace)).toBe('no');
    expect(await may('tool-executor', 'get', 'secrets', workspaces)).toBe('no');
    for (const account of ['gateway', 'session', 'agent-runner', 'ide-manager'])
      expect([account, await may(account, 'get', 'pods', workspaces)]).toEqual([account, 'no']);
  });

  it('refuses to run a pod in the workspaces that is not restricted', async () => {
    const pod = { apiVersion: 'v1', kind: 'Pod', metadata: { name: 'bad', namespace: workspaces }, spec: { containers: [{ name: 'a', image: 'a', securityContext: { privileged: true } }] } }; // prettier-ignore
    expect(await refusal(cluster.apply(pod))).toContain('violates PodSecurity "restricted');
  });

  it('is upgraded without a failed request and without a changed secret', async () => {
    const before = await secretData();
    expect(Object.keys(before).sort()).toEqual(['margay-first-key', 'margay-keys', 'margay-nats']);
    const asking = cluster.exec(namespace, 'client', ['/usr/bin/node', '-e', ASKING], { timeoutMs: 200_000 });
    const changed = { ...values(), pods: { annotations: { round: 'two' } } };
    await cluster.helm(['upgrade', 'margay', ...install], { input: JSON.stringify(changed), timeoutMs: 200_000 });
    await cluster.evaluate(namespace, 'client', `require('node:fs').writeFileSync('/tmp/stop', '')`);
    const counts = JSON.parse(await asking) as Record<string, number>;
    expect(Object.keys(counts)).toEqual(['200']);
    expect(counts['200']).toBeGreaterThan(20);
    expect(await secretData()).toEqual(before);
  });

  it('leaves nothing but secrets and the workspaces when it is uninstalled', async () => {
    await cluster.helm(['uninstall', 'margay', '--namespace', namespace]);
    const kinds =
      'all,configmap,secret,serviceaccount,role,rolebinding,networkpolicy,poddisruptionbudget,persistentvolumeclaim';
    const left = async () => {
      const names = await cluster.kubectl(['-n', namespace, 'get', kinds, '-l', 'app.kubernetes.io/name=margay', '-o', 'name']); // prettier-ignore
      // The pod of helm test stays to be read.
      return names.split('\n').filter((line) => line !== '' && line !== 'pod/margay-check');
    };
    const kept = ['secret/margay-first-key', 'secret/margay-keys', 'secret/margay-nats'];
    await cluster.until('the end of all pods', async () => expect((await left()).sort()).toEqual(kept), 120_000);
    const sandboxes = await cluster.kubectl(['-n', workspaces, 'get', 'pods', '-o', 'name']);
    expect(sandboxes).toBe('');
    expect(await cluster.kubectl(['-n', workspaces, 'get', 'pvc', '-o', 'name'])).toContain('persistentvolumeclaim/');
  });
});

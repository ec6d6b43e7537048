import { EVALUATION, EXTERNAL, readChartYaml, refusal, render } from './render';

const EMPTY_POLICY = { networkPolicy: { mongodbTo: [], natsTo: [] } };
const PEER = [{ podSelector: { matchLabels: { a: 'b' } } }];

describe('what does not fit together is refused, with what to set', () => {
  it.each([
    [
      'no MongoDB',
      { nats: { enabled: true } },
      'mongodb.external.existingSecret: there is no MongoDB; set it to a secret with `url`, or mongodb.enabled to true',
    ],
    ['no NATS', { mongodb: { enabled: true } }, 'nats.external.existingSecret: there is no NATS; set it'],
    [
      'both kinds of MongoDB',
      { ...EVALUATION, mongodb: { enabled: true, external: { existingSecret: 'm' } } },
      'mongodb: both the bundled server and an external one are named; set mongodb.enabled to false',
    ],
    [
      'both kinds of NATS',
      { ...EVALUATION, nats: { enabled: true, external: { existingSecret: 'n' } } },
      'nats: both the bundled server',
    ],
    [
      'an external MongoDB that nothing reaches',
      { ...EXTERNAL, ...EMPTY_POLICY },
      'networkPolicy.mongodbTo: empty, so nothing reaches the external server; set peers',
    ],
    ['an external NATS that nothing reaches', { ...EXTERNAL, ...EMPTY_POLICY }, 'networkPolicy.natsTo: empty'],
    [
      'a bundled MongoDB in an open network',
      { ...EVALUATION, networkPolicy: { enabled: false } },
      'mongodb.enabled: the bundled server has no password and is kept by the network policy alone; set networkPolicy.enabled to true',
    ],
    [
      'existing keys without their secret',
      { ...EVALUATION, secrets: { mode: 'existing' } },
      'secrets.existingSecret: missing with secrets.mode existing; set it',
    ],
    [
      'existing keys without one for secrets',
      { ...EVALUATION, secrets: { mode: 'existing', existingSecret: 'k' } },
      'secrets.kek.existingSecret: missing with secrets.mode existing; set it',
    ],
    [
      'a secret of keys that is not used',
      { ...EVALUATION, secrets: { existingSecret: 'k' } },
      'secrets.existingSecret: not used with secrets.mode generated; set secrets.mode to existing',
    ],
    [
      'less grace than drain + 15',
      { ...EVALUATION, session: { drainSeconds: 31 } },
      'session.graceSeconds: 45 is less than drainSeconds + 15, so pods are killed while they hand over; set at least 46',
    ],
    [
      'the same for runners',
      { ...EVALUATION, runner: { graceSeconds: 44 } },
      'runner.graceSeconds: 44 is less than drainSeconds + 15',
    ],
    [
      'the same in mode combined',
      { ...EVALUATION, mode: 'combined', control: { graceSeconds: 20 } },
      'control.graceSeconds: 20 is less',
    ],
    [
      'no room for the heap',
      { ...EVALUATION, channel: { resources: { requests: { cpu: 1, memory: '64Mi' }, limits: { memory: '100Mi' } } } },
      'channel.resources.limits.memory: too little is left for the heap; set a higher limit',
    ],
    [
      'no room beside runs driven alone',
      { ...EVALUATION, runner: { isolated: { runs: 6, heapMb: 256 } } },
      'runner.resources.limits.memory: too little is left for the heap beside runner.isolated',
    ],
    [
      'streams closed longer than the pod drains',
      { ...EVALUATION, gateway: { streamDrainSeconds: 20 } },
      'gateway.streamDrainSeconds: 20 is not less than the drainSeconds of the pod (20)',
    ],
    [
      'a gateway scaled in mode combined',
      { ...EVALUATION, mode: 'combined', gateway: { autoscaling: { enabled: true } } },
      'gateway.autoscaling.enabled: there is no deployment of the gateway in mode combined; set mode to split',
    ],
    [
      'fewest above most',
      { ...EVALUATION, runner: { autoscaling: { minReplicas: 30 } } },
      'runner.autoscaling.minReplicas: 30 is more than maxReplicas (20); set a smaller one',
    ],
    [
      'two pools of one name',
      {
        ...EVALUATION,
        runner: {
          pools: [
            { name: 'a', replicas: 1, slots: 1 },
            { name: 'a', replicas: 1, slots: 1 },
          ],
        },
      },
      'runner.pools: two pools have one name; set different ones',
    ],
    [
      'a first pool for some alone',
      { ...EVALUATION, runner: { pools: [{ name: 'a', replicas: 1, slots: 1, tenants: ['acme'] }] } },
      'runner.pools[0].tenants: the first pool is for all who have no other; leave its tenants out',
    ],
    [
      'a tenant in two pools',
      {
        ...EVALUATION,
        runner: {
          pools: [
            { name: 'a', replicas: 1, slots: 1 },
            { name: 'b', replicas: 1, slots: 1, tenants: ['acme'] },
            { name: 'c', replicas: 1, slots: 1, tenants: ['acme'] },
          ],
        },
      },
      'runner.pools: a tenant is in two pools; leave it in one',
    ],
    [
      'an ingress without a host',
      { ...EVALUATION, gateway: { ingress: { enabled: true } } },
      'gateway.host: missing although the ingress or route is enabled; set the name',
    ],
    [
      'an ingress in the clear',
      {
        ...EVALUATION,
        gateway: { host: 'm.example.com', ingress: { enabled: true } },
        networkPolicy: { ingressFrom: PEER },
      },
      'gateway.ingress.tlsSecret: missing, so keys would travel in the clear; set the secret with the certificate of m.example.com',
    ],
    [
      'an ingress controller that is kept out',
      { ...EVALUATION, gateway: { host: 'localhost', ingress: { enabled: true } } },
      'networkPolicy.ingressFrom: empty, so the ingress controller does not reach the gateway; set its',
    ],
    [
      'a route that no Gateway takes',
      {
        ...EVALUATION,
        gateway: { host: 'm.example.com', route: { enabled: true } },
        networkPolicy: { ingressFrom: PEER },
      },
      'gateway.route.parentRefs: empty, so no Gateway takes the route; set at least one',
    ],
    [
      'traces that can not leave',
      { ...EVALUATION, observability: { otlp: { endpoint: 'http://c:4318' } } },
      'networkPolicy.otlpTo: empty, so no trace leaves; set peers',
    ],
    [
      'backups without a place',
      { ...EVALUATION, backup: { enabled: true } },
      'backup.existingClaim: missing, so there is no place for backups; set a claim',
    ],
    [
      'a restore from nowhere',
      { ...EVALUATION, restore: { enabled: true } },
      'backup.existingClaim: missing, so there is no place for backups',
    ],
    [
      'several tenants beside rights in the cluster',
      { ...EVALUATION, mode: 'combined', tenancy: { multiTenant: true } },
      'tenancy.multiTenant: in mode combined rights in the cluster stand beside the public port; set mode to split, or tenancy.acceptCombined to true',
    ],
    [
      'several tenants in an open network',
      { ...EXTERNAL, networkPolicy: { enabled: false }, tenancy: { multiTenant: true } },
      'tenancy.multiTenant: without network policies sandboxes of one tenant reach those of another; set networkPolicy.enabled to true',
    ],
    [
      'several tenants in one pod',
      {
        ...EVALUATION,
        tenancy: { multiTenant: true },
        toolExecutor: { extraEnv: [{ name: 'MARGAY_SANDBOX_DRIVER', value: 'process' }] },
      },
      'tenancy.multiTenant: with the driver process sandboxes of all tenants share one pod; take MARGAY_SANDBOX_DRIVER out of toolExecutor.extraEnv',
    ],
    [
      'sandboxes beside services',
      { ...EVALUATION, workspaces: { namespace: 'agents' } },
      'workspaces: the namespace agents is used twice, and sandboxes must not lie beside services; set another one',
    ],
    [
      'one namespace of sandboxes twice',
      { ...EVALUATION, workspaces: { extraNamespaces: [{ name: 'team' }, { name: 'team' }] } },
      'workspaces: the namespace team is used twice',
    ],
    [
      'a tenant of two namespaces',
      {
        ...EVALUATION,
        workspaces: {
          extraNamespaces: [
            { name: 'a', tenants: ['t'] },
            { name: 'b', tenants: ['t'] },
          ],
        },
      },
      'workspaces.extraNamespaces: a tenant is in two namespaces; leave it in one',
    ],
    [
      'an API server that is out of reach',
      { ...EVALUATION, networkPolicy: { apiServerCidrs: [] } },
      'networkPolicy.apiServerCidrs: empty, so tool-executor can make no sandboxes; set the addresses that `kubectl get endpoints kubernetes` lists',
    ],
    [
      'a model that is out of reach',
      { ...EVALUATION, models: { default: 'm' }, networkPolicy: { modelCidrs: [] } },
      'networkPolicy.modelCidrs: empty, so no model is reached; set the ranges of your provider, or modelTo',
    ],
    [
      'a way of tools that they do not take',
      { ...EVALUATION, networkPolicy: { httpToolsTo: [{ ipBlock: { cidr: '203.0.113.40/32' } }] } },
      'networkPolicy.httpToolsTo: tools go out by the egress proxy, so it opens nothing; set toolExecutor.httpToolsDirect to true',
    ],
    [
      'a private host that stands for everything',
      { ...EVALUATION, egress: { private: [{ host: 'git.example.com', cidr: '0.0.0.0/0', ports: [443] }] } },
      'egress.private: 0.0.0.0/0 stands for everything, so git.example.com could lead into the cluster; set the range of that host',
    ],
    [
      'a cluster that is everything',
      { ...EVALUATION, egress: { clusterCidrs: ['::/0'] } },
      'egress.clusterCidrs: ::/0 stands for everything, so nothing could be reached; set the ranges of your cluster',
    ],
    [
      'a proxy that is killed while tunnels are open',
      { ...EVALUATION, egress: { drainSeconds: 90 } },
      'egress.graceSeconds: 75 is less than drainSeconds + 15, so pods are killed while they hand over; set at least 105',
    ],
    [
      'classes without a default one',
      { ...EVALUATION, sandbox: { classes: { big: {} } } },
      'sandbox.classes: there is none called "default", which sessions use; set one',
    ],
    [
      'KEDA kept out',
      { ...EVALUATION, runner: { autoscaling: { driver: 'keda' } } },
      'networkPolicy.monitoringFrom: empty, so KEDA can not ask for the demand; set peers of its operator',
    ],
    [
      'Prometheus kept out',
      { ...EVALUATION, observability: { serviceMonitor: 'always' } },
      'networkPolicy.monitoringFrom: empty, so Prometheus does not reach the management ports; set its peers',
    ],
  ])('%s', (_, values, words) => {
    expect(refusal(values)).toContain(words);
  });

  it('all at once, each in a line of its own', () => {
    // Helm says everything twice.
    const lines = [...new Set(refusal({ session: { graceSeconds: 1 } }).split('\n'))];
    const faults = lines.filter((line) => /^\s*[\w.]+: .+; set /.test(line));
    expect(faults.map((line) => line.trim().split(':')[0])).toEqual(['mongodb.external.existingSecret', 'nats.external.existingSecret', 'session.graceSeconds']); // prettier-ignore
  });
});

describe('unknown and misshapen values are refused by name', () => {
  it.each([
    ['a key that does not exist', { ...EVALUATION, gatway: {} }, /gatway/],
    ['one within a section', { ...EVALUATION, session: { replica: 3 } }, /session.*replica/s],
    ['one of a pool', { ...EVALUATION, runner: { pools: [{ name: 'a', replicas: 1, slots: 1, size: 2 }] } }, /size/],
    ['another mode', { ...EVALUATION, mode: 'both' }, /mode/],
    ['no pools', { ...EVALUATION, runner: { pools: [] } }, /pools/],
    [
      'a pool with too many slots',
      { ...EVALUATION, runner: { pools: [{ name: 'a', replicas: 1, slots: 10001 }] } },
      /slots/,
    ],
    ['words for a number', { ...EVALUATION, gateway: { replicas: 'two' } }, /replicas/],
    ['no replica', { ...EVALUATION, gateway: { replicas: 0 } }, /replicas/],
    ['a digest cut short', { ...EVALUATION, image: { digest: 'sha256:abc' } }, /digest/],
    [
      'resources without a memory limit',
      { ...EVALUATION, session: { resources: { limits: { memory: null } } } },
      /memory/,
    ],
    ['a cell that no key can begin with', { ...EVALUATION, session: { cell: 'Europe-1' } }, /cell/],
    ['a way out wider than any', { ...EVALUATION, egress: { maxMode: 'everything' } }, /maxMode/],
    ['an exception without ports', { ...EVALUATION, egress: { private: [{ host: 'a', cidr: '192.0.2.1/32' }] } }, /ports/], // prettier-ignore
    ['a namespace with a capital', { ...EVALUATION, workspaces: { extraNamespaces: [{ name: 'Team' }] } }, /name/],
    ['a backup outside its volume', { ...EVALUATION, restore: { folder: '../x' } }, /folder/],
    ['a key that ended before it began', { ...EVALUATION, firstKey: { ttlSeconds: -1 } }, /ttlSeconds/],
    ['root', { ...EVALUATION, pods: { runAsUser: 0 } }, /runAsUser/],
    ['a peer that means everybody', { ...EVALUATION, networkPolicy: { ingressFrom: [{}] } }, /ingressFrom/],
    ['an address for a range', { ...EVALUATION, networkPolicy: { modelCidrs: ['203.0.113.1'] } }, /modelCidrs/],
    ['a secret in the clear', { ...EVALUATION, models: { apiKey: 'x' } }, /apiKey/],
    ['a log level that does not exist', { ...EVALUATION, observability: { logLevel: 'loud' } }, /logLevel/],
  ])('%s', (_, values, words) => {
    expect(refusal(values)).toMatch(words);
  });
});

describe('what is accepted', () => {
  it('is every value by itself as values.yaml has it', () => {
    expect(() => render({ ...(readChartYaml('values.yaml') as object), ...EVALUATION })).not.toThrow();
  });

  it('is mode combined for several tenants by those who know what it means', () => {
    expect(() => render({ ...EVALUATION, mode: 'combined', tenancy: { multiTenant: true, acceptCombined: true } })).not.toThrow(); // prettier-ignore
  });

  it('is no range for models where they are pods, or where there is none', () => {
    const networkPolicy = { modelCidrs: [], modelTo: PEER };
    expect(() => render({ ...EVALUATION, models: { default: 'm' }, networkPolicy })).not.toThrow();
    expect(() => render({ ...EVALUATION, networkPolicy: { modelCidrs: [] } })).not.toThrow();
  });

  it('is the chart as a part of another', () => {
    expect(() => render({ ...EVALUATION, global: { anything: true } })).not.toThrow();
  });
});

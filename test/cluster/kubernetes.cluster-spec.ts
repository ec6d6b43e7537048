import { ClusterHarness, refusal } from './harness';
import { answering, fetching, httpPod, lookingUp, nodePod, podSpec, READY_ON_HTTP, service } from './pods';

jest.setTimeout(180_000);

// What the product relies on is really so in the cluster that the other specifications run in.
describe('the test cluster', () => {
  const cluster = new ClusterHarness();
  let namespace: string;

  beforeAll(async () => {
    namespace = await cluster.namespace('kubernetes');
    await cluster.apply(httpPod(cluster, 'web', namespace), service('web', namespace));
    await cluster.apply(nodePod(cluster, { name: 'client', namespace, script: 'setInterval(() => 0, 1e6)' }));
    for (const pod of ['pod/web', 'pod/client']) await cluster.waitFor(namespace, pod, 'condition=Ready');
  });
  afterAll(() => cluster.stop());

  const inClient = (script: string) => cluster.evaluate(namespace, 'client', script);

  it('has a node that is Ready', async () => {
    const { items } = await cluster.get<{ items: { status: { conditions: { type: string; status: string }[] } }[] }>(
      'default',
      'nodes',
    );
    expect(items.length).toBeGreaterThan(0);
    const ready = items[0]?.status.conditions.find(({ type }) => type === 'Ready');
    expect(ready?.status).toBe('True');
  });

  it('answers names of Services, and knows foreign ones are not there', async () => {
    const { spec } = await cluster.get<{ spec: { clusterIP: string } }>(namespace, 'service', 'web');
    expect(
      await cluster.until('DNS', async () => spec.clusterIP === (await inClient(lookingUp('web'))) || fail()),
    ).toBe(true);
    expect(await inClient(lookingUp(`web.${namespace}.svc.cluster.local`))).toBe(spec.clusterIP);
    expect(await inClient(lookingUp('nothing.example.com'))).toBe('ENOTFOUND');
  });

  it('carries a request through a Service', async () => {
    expect(await inClient(fetching('http://web/'))).toBe('hello from web');
  });

  it('tells a command its standard input and passes on its exit code', async () => {
    const echo = ['/usr/bin/node', '-e', 'process.stdin.pipe(process.stdout)'];
    expect(await cluster.exec(namespace, 'client', echo, { input: 'hello' })).toBe('hello');
    await expect(cluster.exec(namespace, 'client', ['/usr/bin/node', '-e', 'process.exit(7)'])).rejects.toMatchObject({
      exitCode: 7,
    });
  });

  it('refuses pods that are not restricted', async () => {
    const { metadata, ...pod } = nodePod(cluster, { name: 'careless', namespace, script: '' });
    const careless = { ...pod, metadata, spec: { containers: [{ name: 'main', image: cluster.image('margay') }] } };
    expect(await refusal(cluster.apply(careless))).toContain('violates PodSecurity');
  });

  it('lets a service account do what its role says and nothing else', async () => {
    await cluster.kubectl(['-n', namespace, 'create', 'serviceaccount', 'reader']);
    await cluster.kubectl(['-n', namespace, 'create', 'role', 'reader', '--verb=get,list', '--resource=pods']);
    await cluster.kubectl([
      '-n',
      namespace,
      'create',
      'rolebinding',
      'reader',
      '--role=reader',
      `--serviceaccount=${namespace}:reader`,
    ]);
    const as = `--as=system:serviceaccount:${namespace}:reader`;
    expect(await cluster.kubectl(['-n', namespace, 'get', 'pods', as])).toContain('web');
    expect(await refusal(cluster.kubectl(['-n', namespace, 'get', 'secrets', as]))).toContain('Forbidden');
    expect(await refusal(cluster.kubectl(['-n', namespace, 'delete', 'pod', 'web', as]))).toContain('Forbidden');
  });

  it('says so when a container has eaten more memory than it may', async () => {
    const script = 'const kept = []; setInterval(() => kept.push(Buffer.alloc(2e7, 1)), 5)';
    const container = { resources: { limits: { memory: '96Mi' } } };
    await cluster.apply(
      nodePod(cluster, { name: 'eater', namespace, script, container, spec: { restartPolicy: 'Never' } }),
    );
    await cluster.waitFor(namespace, 'pod/eater', 'jsonpath={.status.phase}=Failed');
    const path = '-o=jsonpath={.status.containerStatuses[0].state.terminated.reason}';
    expect(await cluster.kubectl(['-n', namespace, 'get', 'pod', 'eater', path])).toBe('OOMKilled');
  });

  it('keeps a volume from one pod to the next', async () => {
    await cluster.apply({
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name: 'kept', namespace },
      spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '10Mi' } } },
    });
    const script = `const fs = require('node:fs'); fs.appendFileSync('/kept/file', 'x');
      console.log(fs.readFileSync('/kept/file', 'utf8'))`;
    for (const name of ['first', 'second']) {
      const container = { volumeMounts: [{ name: 'kept', mountPath: '/kept' }] };
      const volumes = [{ name: 'kept', persistentVolumeClaim: { claimName: 'kept' } }];
      await cluster.apply(
        nodePod(cluster, { name, namespace, script, container, spec: { restartPolicy: 'Never', volumes } }),
      );
      await cluster.waitFor(namespace, `pod/${name}`, 'jsonpath={.status.phase}=Succeeded');
    }
    expect(await cluster.kubectl(['-n', namespace, 'logs', 'second'])).toBe('xx\n');
  });

  it('replaces a Deployment without a failed request', async () => {
    const deployment = (version: string) => ({
      apiVersion: 'apps/v1',
      kind: 'Deployment',
      metadata: { name: 'rolling', namespace },
      spec: {
        replicas: 2,
        strategy: { rollingUpdate: { maxUnavailable: 0, maxSurge: 1 } },
        selector: { matchLabels: { app: 'rolling' } },
        template: {
          metadata: { labels: { app: 'rolling' } },
          spec: {
            ...podSpec(cluster, { script: answering(`'${version}'`), container: READY_ON_HTTP }),
            terminationGracePeriodSeconds: 10,
          },
        },
      },
    });
    const rollout = () =>
      cluster.kubectl(['-n', namespace, 'rollout', 'status', 'deployment/rolling', '--timeout=90s']);
    await cluster.apply(deployment('old'), service('rolling', namespace));
    await rollout();
    expect(
      await cluster.until('rolling', async () => (await inClient(fetching('http://rolling/'))) === 'old' || fail()),
    ).toBe(true);
    const load = inClient(`(async () => {
      const seen = {};
      const until = Date.now() + 60000;
      while (Date.now() < until && !(seen.new > 50)) {
        const answer = await fetch('http://rolling/', { signal: AbortSignal.timeout(5000) })
          .then((response) => response.text(), () => 'failed');
        seen[answer] = (seen[answer] ?? 0) + 1;
        await new Promise((resolve) => setTimeout(resolve, 10));
      }
      console.log(JSON.stringify(seen));
    })()`);
    await cluster.apply(deployment('new'));
    await rollout();
    expect(JSON.parse(await load)).toEqual({ old: expect.any(Number), new: expect.any(Number) });
  });

  it('evicts no pod that a PodDisruptionBudget keeps', async () => {
    const budget = (minAvailable: number) => ({
      apiVersion: 'policy/v1',
      kind: 'PodDisruptionBudget',
      metadata: { name: 'web', namespace },
      spec: { minAvailable, selector: { matchLabels: { app: 'web' } } },
    });
    const evict = () =>
      cluster.kubectl(['create', '-f', '-', '--raw', `/api/v1/namespaces/${namespace}/pods/web/eviction`], {
        input: JSON.stringify({ apiVersion: 'policy/v1', kind: 'Eviction', metadata: { name: 'web', namespace } }),
      });
    await cluster.apply(budget(1));
    await cluster.until('budget is seen', async () => {
      expect(await refusal(evict())).toContain('disruption budget');
    });
    await cluster.apply(budget(0));
    expect(await cluster.until('eviction', evict)).toContain('Success');
  });

  const withAuditLog = process.env.MARGAY_TEST_AUDIT_LOG ? it : it.skip;
  withAuditLog('writes down who wrote what', async () => {
    const label = ['-n', namespace, 'label', 'pod', 'client', `--as=system:serviceaccount:${namespace}:writer`];
    await refusal(cluster.kubectl([...label, 'a=b']));
    await cluster.kubectl(['-n', namespace, 'label', 'pod', 'client', 'a=b']);
    const writes = (await cluster.auditedWrites()).filter(({ name, verb }) => name === 'client' && verb === 'patch');
    expect(writes).toEqual([expect.objectContaining({ user: 'admin', resource: 'pods', namespace, code: 200 })]);
  });

  const fail = (): never => {
    throw new Error('not yet');
  };
});

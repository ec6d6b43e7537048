import { describeWith } from './features';
import { ClusterHarness, type Manifest } from './harness';
import { fetching, httpPod, lookingUp, service } from './pods';

jest.setTimeout(180_000);

// A cluster without an enforcer stores NetworkPolicies and lets everything pass; ours has to cut.
describeWith('networkpolicy')('network policies', () => {
  const cluster = new ClusterHarness();
  let home: string;
  let abroad: string;
  let addresses: Record<string, string>;

  beforeAll(async () => {
    home = await cluster.namespace('policies');
    abroad = await cluster.namespace('abroad');
    await cluster.kubectl(['label', 'namespace', abroad, 'team=two']);
    const pods = { a: home, b: home, c: home, d: abroad };
    await cluster.apply(
      ...Object.entries(pods).map(([name, namespace]) => httpPod(cluster, name, namespace)),
      service('b', home),
    );
    for (const [name, namespace] of Object.entries(pods))
      await cluster.waitFor(namespace, `pod/${name}`, 'condition=Ready');
    const address = async ([name, namespace]: [string, string]) => [name, await addressOf(namespace, name)];
    addresses = Object.fromEntries(await Promise.all(Object.entries(pods).map(address)));
  });
  afterAll(() => cluster.stop());

  const addressOf = (namespace: string, pod: string) =>
    cluster.kubectl(['-n', namespace, 'get', 'pod', pod, '-o=jsonpath={.status.podIP}']);
  const from = (pod: string, url: string) => cluster.evaluate(pod === 'd' ? abroad : home, pod, fetching(url));
  const to = (pod: string) => `http://${addresses[pod]}:8080/`;
  /** Rules reach the node a moment after they are stored. */
  const expectSoon = (pod: string, url: string, answer: string) =>
    cluster.until(`${pod} asks ${url}`, async () => expect(await from(pod, url)).toBe(answer));

  const policy = (name: string, spec: object): Manifest => ({
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: { name, namespace: home },
    spec,
  });

  it('lets everything pass while there is none', async () => {
    await expectSoon('a', to('b'), 'hello from b');
    await expectSoon('a', 'http://b/', 'hello from b');
    expect(await from('d', to('b'))).toBe('hello from b');
  });

  it('cuts pods, namespaces, DNS and the API server by a policy that allows nothing', async () => {
    await cluster.apply(policy('nothing', { podSelector: {}, policyTypes: ['Ingress', 'Egress'] }));
    await expectSoon('a', to('b'), 'cut');
    expect(await from('a', to('d'))).toBe('cut');
    expect(await from('d', to('b'))).toBe('cut');
    expect(await cluster.evaluate(home, 'a', lookingUp('b'))).toMatch(/^E/);
    const api = await cluster.kubectl([
      '-n',
      'default',
      'get',
      'service',
      'kubernetes',
      '-o=jsonpath={.spec.clusterIP}',
    ]);
    expect(await from('a', `http://${api}:443/`)).toBe('cut');
  });

  it('opens what a rule names, and only that', async () => {
    const dns = {
      namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'kube-system' } },
      podSelector: { matchLabels: { 'k8s-app': 'kube-dns' } },
    };
    const dnsPorts = ['UDP', 'TCP'].map((protocol) => ({ port: 53, protocol }));
    const only = (app: string) => ({ podSelector: { matchLabels: { app } } });
    await cluster.apply(
      policy('a-out', {
        ...only('a'),
        policyTypes: ['Egress'],
        egress: [
          { to: [only('b')], ports: [{ port: 8080 }] },
          { to: [dns], ports: dnsPorts },
        ],
      }),
      policy('b-in', {
        ...only('b'),
        policyTypes: ['Ingress'],
        ingress: [
          { from: [only('a'), { namespaceSelector: { matchLabels: { team: 'two' } } }], ports: [{ port: 8080 }] },
        ],
      }),
    );
    await expectSoon('a', 'http://b/', 'hello from b');
    await expectSoon('d', to('b'), 'hello from b');
    expect(await from('c', to('b'))).toBe('cut');
    expect(await from('a', to('c'))).toBe('cut');
  });

  it('opens everything again when they are gone', async () => {
    await cluster.kubectl(['-n', home, 'delete', 'networkpolicy', '--all']);
    await expectSoon('c', to('b'), 'hello from b');
  });
});

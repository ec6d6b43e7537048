import { parseAllDocuments } from 'yaml';
import { ExecutorPods, type ExecutorClient, type Heard } from './executor-pods';
import { describeWith } from './features';
import { ClusterHarness, type Manifest } from './harness';

jest.setTimeout(420_000);

const CLASS = {
  cpu: { request: '50m', limit: '1' },
  memory: { request: '64Mi', limit: '512Mi' },
  workspace: '256Mi',
  scratch: '256Mi',
  storage: 'volume',
  egress: 'none',
  warm: { min: 0, max: 0 },
};
const SOLO = 'solo';

describeWith('networkpolicy')('tenants on one cluster', () => {
  const cluster = new ClusterHarness();
  let pods: ExecutorPods;
  let client: ExecutorClient;
  let own: string;

  beforeAll(async () => {
    pods = await ExecutorPods.open(cluster, { default: CLASS });
    own = await cluster.namespace('own');
    await cluster.apply(...rightsIn(own));
    const environment = {
      MARGAY_MULTI_TENANT: 'true',
      MARGAY_WORKSPACES_EXTRA_NAMESPACES: JSON.stringify({ [own]: [SOLO] }),
    };
    ({ client } = await pods.start('one', environment));
  });
  afterAll(async () => {
    await pods?.close();
    await cluster.stop();
  });

  const rightsIn = (namespace: string): Manifest[] => {
    const verbs = ['get', 'list', 'watch', 'create', 'patch', 'delete'];
    const rules = [
      { apiGroups: [''], resources: ['pods', 'persistentvolumeclaims'], verbs },
      { apiGroups: [''], resources: ['events', 'resourcequotas'], verbs: ['get', 'list', 'watch'] },
    ];
    const apiGroup = 'rbac.authorization.k8s.io';
    const metadata = { name: 'executor', namespace };
    const subjects = [{ kind: 'ServiceAccount', name: 'executor', namespace: pods.home }];
    const roleRef = { apiGroup, kind: 'Role', name: 'executor' };
    return [
      { apiVersion: `${apiGroup}/v1`, kind: 'Role', metadata, rules },
      { apiVersion: `${apiGroup}/v1`, kind: 'RoleBinding', metadata, roleRef, subjects },
    ];
  };

  /** The chart's, for both namespaces. */
  const policies = async (): Promise<Manifest[]> => {
    const workspaces = {
      namespace: pods.boxes,
      create: false,
      extraNamespaces: [{ name: own, create: false, tenants: [SOLO] }],
    };
    const values = { workspaces, mongodb: { enabled: true }, nats: { enabled: true } };
    const args = ['template', 'margay', 'charts/margay', '--namespace', pods.home, '--values', '-'];
    const shown = ['--show-only', 'templates/workspaces.yaml'];
    const text = await cluster.helm([...args, ...shown], { input: JSON.stringify(values) });
    const objects = parseAllDocuments(text).map((document) => document.toJS() as Manifest | null);
    return objects.filter((object): object is Manifest => object?.kind === 'NetworkPolicy');
  };

  const asSolo = (command: string): Promise<Heard> =>
    pods.call(client, 'solo1', { args: { command }, grant: { tenantId: SOLO } });

  const namesIn = async (namespace: string, what: string): Promise<string[]> => {
    const selector = `margay.dev/tenant-id=${SOLO}`;
    const text = await cluster.kubectl(['-n', namespace, 'get', what, '-l', selector, '-o', 'name']);
    return text.split('\n').filter((name) => name !== '');
  };

  it('a second one has no sandbox while the network keeps nobody apart', async () => {
    expect((await pods.shell(client, 'first1', 'echo first')).output).toBe('first\n');
    const words = await cluster.until(
      'somebody has looked at the network',
      async () => {
        const error = await asSolo('true').then(
          () => new Error('it was served'),
          (cause: unknown) => cause as Error & { reason?: string },
        );
        expect(error).toMatchObject({ reason: 'network_policy_unenforced' });
        expect(error.message).not.toContain('not known yet');
        return error.message;
      },
      180_000,
    );
    expect(words).toContain('sandboxes reach tool-executor');
    expect(words).toContain('another sandbox');
    expect(words).toContain('ports of sandboxes are open that no policy opens');
  });

  it('is served, in a namespace of its own, once policies are enforced', async () => {
    await cluster.apply(...(await policies()));
    const heard = await cluster.until(
      'the network is found closed',
      () => asSolo('echo kept > file; echo in'),
      300_000,
    );
    expect(heard.output).toBe('in\n');
    expect(await namesIn(own, 'pods')).toHaveLength(1);
    expect(await namesIn(pods.boxes, 'pods')).toEqual([]);
    const volumes = await cluster.kubectl(['-n', own, 'get', 'pvc', '-o', 'name']);
    expect(volumes.trim().split('\n')).toHaveLength(1);
    const probes = await cluster.kubectl(['-n', own, 'get', 'pods', '-l', 'margay.dev/network-probe', '-o', 'name']);
    expect(probes).toBe('');
  });

  it('loses no files with its pod, which is collected there', async () => {
    const [pod = ''] = await namesIn(own, 'pods');
    await cluster.kubectl(['-n', own, 'delete', pod, '--grace-period=1']);
    expect((await asSolo('cat file')).output).toBe('kept\n');
    await cluster.until('one pod is left', async () => expect(await namesIn(own, 'pods')).toHaveLength(1));
  });
});

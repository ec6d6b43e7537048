import { ClusterHarness } from './harness';
import { fetching, httpPod } from './pods';

/** What a cluster may lack; ours has it all. */
export const FEATURES = ['dns', 'volumes', 'networkpolicy', 'metrics'] as const;
export type Feature = (typeof FEATURES)[number];

const MISSING = 'MARGAY_TEST_MISSING';

const isMissing = (feature: Feature): boolean => (process.env[MISSING] ?? '').split(',').includes(feature);

/** `describe` where the cluster of this run has the feature, else its tests are skipped. */
export const describeWith = (feature: Feature): typeof describe =>
  isMissing(feature) ? (describe.skip as typeof describe) : describe;

/** `it`, likewise. */
export const testWith = (feature: Feature): typeof it => (isMissing(feature) ? (it.skip as typeof it) : it);

/** Jest calls it before any test: tries what a cluster of somebody else has, and names what is missing. */
export async function probeFeatures(): Promise<void> {
  if (process.env.MARGAY_TEST_CLUSTER !== 'existing') return;
  const missing: Feature[] = [];
  for (const feature of FEATURES) {
    const reason = await PROBES[feature]();
    if (reason === undefined) continue;
    process.stderr.write(`SKIP cluster ${feature}: ${reason}\n`);
    missing.push(feature);
  }
  process.env[MISSING] = missing.join(',');
  const required = (process.env.MARGAY_REQUIRE ?? '').split(',');
  const refused = missing.filter((feature) => required.includes(feature));
  if (refused.length > 0) throw new Error(`MARGAY_REQUIRE asks for what this cluster lacks: ${refused.join(', ')}`);
}

const PROBES: Record<Feature, () => Promise<string | undefined>> = {
  dns: async () => {
    const path = '-o=jsonpath={.items[*].endpoints[*].conditions.ready}';
    const select = ['-l', 'kubernetes.io/service-name=kube-dns'];
    const ready = await new ClusterHarness().kubectl(['-n', 'kube-system', 'get', 'endpointslice', ...select, path]);
    return ready.includes('true') ? undefined : 'the Service kube-dns in kube-system has no endpoint that is ready';
  },
  volumes: async () => {
    const { items } = await new ClusterHarness().get<ClassList>('default', 'storageclass');
    const isDefault = ({ metadata }: ClassList['items'][number]): boolean =>
      metadata.annotations?.['storageclass.kubernetes.io/is-default-class'] === 'true';
    return items.some(isDefault) ? undefined : 'there is no default StorageClass';
  },
  metrics: async () => {
    const path = '-o=jsonpath={.status.conditions[?(@.type=="Available")].status}';
    const service = ['get', 'apiservice', 'v1beta1.metrics.k8s.io', '--ignore-not-found', path];
    const available = await new ClusterHarness().kubectl(service);
    return available === 'True' ? undefined : 'there is no metrics server';
  },
  networkpolicy: async () => {
    const cluster = new ClusterHarness();
    try {
      return await probeNetworkPolicy(cluster);
    } finally {
      await cluster.stop();
    }
  },
};

interface ClassList {
  items: { metadata: { annotations?: Record<string, string> } }[];
}

/** A cluster without an enforcer stores policies and lets everything pass. */
async function probeNetworkPolicy(cluster: ClusterHarness): Promise<string | undefined> {
  const namespace = await cluster.namespace('probe');
  await cluster.apply(httpPod(cluster, 'from', namespace), httpPod(cluster, 'to', namespace));
  for (const pod of ['pod/from', 'pod/to']) await cluster.waitFor(namespace, pod, 'condition=Ready');
  const address = await cluster.kubectl(['-n', namespace, 'get', 'pod', 'to', '-o=jsonpath={.status.podIP}']);
  await cluster.apply({
    apiVersion: 'networking.k8s.io/v1',
    kind: 'NetworkPolicy',
    metadata: { name: 'nothing', namespace },
    spec: { podSelector: {}, policyTypes: ['Ingress', 'Egress'] },
  });
  try {
    await cluster.until('cut', async () => {
      const answer = await cluster.evaluate(namespace, 'from', fetching(`http://${address}:8080/`));
      if (answer !== 'cut') throw new Error(answer);
    });
    return undefined;
  } catch (error) {
    return `a policy that allows nothing lets everything pass (${String(error)})`;
  }
}

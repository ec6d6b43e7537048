import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { allowedEdges, outerEdges } from './edges';
import { CHART, EVALUATION, EXTERNAL, find, ofKind, podsOf, readChartYaml, render } from './render';

const SANDBOX = {
  namespace: 'margay-workspaces',
  labels: {
    'app.kubernetes.io/managed-by': 'margay',
    'margay.dev/install': 'agents.margay',
    'margay.dev/component': 'sandbox',
    'margay.dev/egress': 'proxy',
  },
};
const SETS = readdirSync(join(CHART, 'ci')).filter((name) => name.endsWith('.yaml') && !name.startsWith('no-network'));
const monitored = { ...EVALUATION, networkPolicy: { monitoringFrom: [{ namespaceSelector: { matchLabels: { a: 'monitoring' } } }] } }; // prettier-ignore

describe('connections between pods', () => {
  it('are these and no other, in mode split', () => {
    expect(allowedEdges(render(), SANDBOX)).toEqual([
      'agent-runner → mcp-pool:9092',
      'agent-runner → session:9090',
      'agent-runner → tool-executor:9091',
      'channel → session:9090',
      'check → gateway:8080',
      'gateway → channel:9094',
      'gateway → ide-manager:9093',
      'gateway → mcp-pool:9092',
      'gateway → nats:4222',
      'gateway → session:9090',
      'gateway → tool-executor:9091',
      'ide-manager → session:9090',
      'ide-manager → tool-executor:9091',
      'mcp-pool → session:9090',
      'mcp-pool → tool-executor:9091',
      'session → mongodb:27017',
      'session → nats:4222',
      'session → tool-executor:9091',
      'tool-executor → mongodb:27017',
      'tool-executor → sandbox:7777',
      'tool-executor → session:9090',
    ]);
  });

  it('are these and no other, in mode combined', () => {
    expect(allowedEdges(render({ ...EVALUATION, mode: 'combined' }), SANDBOX)).toEqual([
      'agent-runner → control:9090',
      'agent-runner → control:9091',
      'agent-runner → control:9092',
      'check → control:8080',
      'control → mongodb:27017',
      'control → nats:4222',
      'control → sandbox:7777',
    ]);
  });

  it('stay the same with servers of one’s own, but for the bundled ones', () => {
    const bundled = allowedEdges(render(), SANDBOX).filter((edge) => !/→ (mongodb|nats):/.test(edge));
    expect(allowedEdges(render(EXTERNAL), SANDBOX)).toEqual(bundled);
  });

  it('are seen by this test when a policy is missing or too wide', () => {
    const without = (name: string) => render().filter(({ kind, metadata }) => kind !== 'NetworkPolicy' || metadata.name !== name); // prettier-ignore
    expect(allowedEdges(without('margay-sandbox'), SANDBOX)).not.toContain('tool-executor → sandbox:7777');
    const open = without('margay-default-deny').filter(({ kind, metadata }) => kind !== 'NetworkPolicy' || metadata.name !== 'margay-mongodb'); // prettier-ignore
    const wide = open.map((object) => (object.metadata.name === 'margay-channel' && object.kind === 'NetworkPolicy' ? { ...object, spec: { ...object.spec, egress: [{}] } } : object)); // prettier-ignore
    expect(allowedEdges(wide, SANDBOX)).toContain('channel → mongodb:27017');
  });
});

describe('ways in and out', () => {
  it('lead to resolvers, the API server and models only, in an evaluation', () => {
    const edges = new Set(outerEdges(render()).map((edge) => edge.replace(/^margay-/, '')));
    const dns = ['agent-runner', 'channel', 'check', 'gateway', 'ide-manager', 'mcp-pool', 'session', 'tool-executor'].flatMap((name) => [`${name} → kube-system/kube-dns:53`, `${name} → kube-system/kube-dns:53/udp`]); // prettier-ignore
    const api = ['bootstrap', 'tool-executor'].flatMap((name) => ['0.0.0.0/0', '::/0'].flatMap((cidr) => [443, 6443].map((port) => `${name} → ${cidr}:${port}`))); // prettier-ignore
    const models = ['0.0.0.0/0', '::/0'].map((cidr) => `agent-runner → ${cidr}:443`);
    const sandboxes = ['tool-executor → margay-workspaces/margay,agents.margay,sandbox:7777'];
    expect([...edges].sort()).toEqual([...dns, ...api, ...models, ...sandboxes].sort());
  });

  it('let the ingress controller reach the gateway, and monitoring the management ports', () => {
    const production = readChartYaml('ci/production.yaml') as object;
    const edges = outerEdges(render(production));
    expect(edges).toContain('ingress-nginx/*:8080 → margay-gateway');
    for (const name of ['gateway', 'session', 'agent-runner', 'tool-executor', 'mcp-pool', 'ide-manager', 'channel'])
      for (const from of ['monitoring', 'keda']) expect(edges).toContain(`${from}/*:9464 → margay-${name}`);
    expect(edges).toEqual(expect.arrayContaining(['margay-session → 203.0.113.0/28:27017', 'margay-gateway → 203.0.113.16/28:4222', 'margay-agent-runner → 198.51.100.0/24:443', 'margay-tool-executor → 192.0.2.1/32:443'])); // prettier-ignore
    expect(edges.filter((edge) => edge.includes('0.0.0.0/0'))).toEqual([]);
  });

  it('keep runners from addresses of the link, where clouds answer with credentials', () => {
    const { spec } = find(render(), 'NetworkPolicy', 'margay-agent-runner');
    const blocks = JSON.stringify(spec.egress);
    expect(blocks).toContain('"except":["169.254.0.0/16"]');
  });
});

describe.each(SETS)('policies of %s', (set) => {
  const objects = render(readChartYaml(`ci/${set}`) as object);
  const policies = ofKind(objects, 'NetworkPolicy');

  it('never say "from anywhere" or "to anywhere"', () => {
    for (const { metadata, spec } of policies)
      for (const rule of [...(spec.ingress ?? []), ...(spec.egress ?? [])]) {
        expect([metadata.name, (rule.from ?? rule.to ?? []).length > 0, (rule.ports ?? []).length > 0]).toEqual([metadata.name, true, true]); // prettier-ignore
        for (const peer of rule.from ?? rule.to) expect(peer).not.toEqual({ podSelector: {} });
      }
  });

  it('let names be asked of the resolvers of the cluster alone', () => {
    for (const { metadata, spec } of policies)
      for (const { to = [], ports } of spec.egress ?? [])
        if (ports.some(({ port }: { port: number }) => port === 53))
          expect([metadata.name, to]).toEqual([metadata.name, [{ namespaceSelector: { matchLabels: { 'kubernetes.io/metadata.name': 'kube-system' } }, podSelector: { matchLabels: { 'k8s-app': 'kube-dns' } } }]]); // prettier-ignore
  });

  it('close every pod of the release, and every pod of the workspaces', () => {
    for (const { owner, labels } of podsOf(objects)) {
      // The policies are gone by then, too.
      if (owner.metadata.annotations?.['helm.sh/hook'] === 'post-delete') continue;
      const closing = policies.filter(({ metadata, spec }) => metadata.namespace === owner.metadata.namespace && spec.policyTypes.length === 2 && Object.entries(spec.podSelector.matchLabels ?? {}).every(([key, value]) => labels[key] === value)); // prettier-ignore
      expect([owner.metadata.name, closing.length]).toEqual([owner.metadata.name, 2]);
    }
    const deny = policies.find(
      ({ metadata, spec }) => metadata.namespace !== 'agents' && JSON.stringify(spec.podSelector) === '{}',
    );
    expect(deny?.spec.policyTypes).toEqual(['Ingress', 'Egress']);
  });
});

describe('without network policies', () => {
  it('there is none', () => {
    expect(ofKind(render(readChartYaml('ci/no-network-policy.yaml') as object), 'NetworkPolicy')).toEqual([]);
  });
});

describe('management ports', () => {
  it('are closed unless somebody is named, and never part of the public Service or ingress', () => {
    expect(outerEdges(render()).filter((edge) => edge.includes('9464'))).toEqual([]);
    expect(outerEdges(render(monitored)).filter((edge) => edge.includes('9464'))).toHaveLength(7);
    expect(find(render(), 'Service', 'margay-gateway').spec.ports).toEqual([{ name: 'http', port: 80, targetPort: 'http', appProtocol: 'http' }]); // prettier-ignore
  });
});

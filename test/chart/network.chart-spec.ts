import { readdirSync, readFileSync } from 'node:fs';
import { BlockList, isIP } from 'node:net';
import { join } from 'node:path';
import { allowedEdges, outerEdges, type Peer } from './edges';
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

/** Whether a range lies in another one. */
function isWithin(cidr: string, inner: string): boolean {
  const [address = '', bits] = cidr.split('/');
  const [innerAddress = '', innerBits] = inner.split('/');
  if (isIP(address) !== isIP(innerAddress) || Number(innerBits) <= Number(bits)) return false;
  const list = new BlockList();
  list.addSubnet(address, Number(bits), isIP(address) === 4 ? 'ipv4' : 'ipv6');
  return list.check(innerAddress, isIP(address) === 4 ? 'ipv4' : 'ipv6');
}

describe('connections between pods', () => {
  it('are these and no other, in mode split', () => {
    expect(allowedEdges(render(), SANDBOX)).toEqual([
      'agent-runner → mcp-pool:9092',
      'agent-runner → session:9090',
      'agent-runner → tool-executor:9091',
      'channel → session:9090',
      'check → gateway:8080',
      'egress → nats:4222',
      'egress → session:9090',
      'egress → tool-executor:9091',
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
      // Only while an upgrade begins.
      'migrate → mongodb:27017',
      'sandbox → egress:3128',
      'session → mongodb:27017',
      'session → nats:4222',
      'session → tool-executor:9091',
      'tool-executor → egress:3129',
      'tool-executor → mongodb:27017',
      'tool-executor → nats:4222',
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
      'control → egress:3129',
      'control → mongodb:27017',
      'control → nats:4222',
      'control → sandbox:7777',
      'egress → control:9090',
      'egress → control:9091',
      'egress → nats:4222',
      'migrate → mongodb:27017',
      'sandbox → egress:3128',
    ]);
  });

  it('stay the same with servers of one’s own, but for the bundled ones', () => {
    const bundled = allowedEdges(render(), SANDBOX).filter((edge) => !/→ (mongodb|nats):/.test(edge));
    expect(allowedEdges(render(EXTERNAL), SANDBOX)).toEqual(bundled);
  });

  it('are seen by this test when a policy is missing or too wide', () => {
    const without = (name: string) => render().filter(({ kind, metadata }) => kind !== 'NetworkPolicy' || metadata.name !== name); // prettier-ignore
    expect(allowedEdges(without('margay-sandbox'), SANDBOX)).not.toContain('tool-executor → sandbox:7777');
    const open = without('margay-default-deny').filter(({ kind, metadata }) => kind !== 'NetworkPolicy' || !metadata.name.startsWith('margay-mongodb')); // prettier-ignore
    const wide = open.map((object) => (object.metadata.name === 'margay-channel' && object.kind === 'NetworkPolicy' ? { ...object, spec: { ...object.spec, egress: [{}] } } : object)); // prettier-ignore
    expect(allowedEdges(wide, SANDBOX)).toContain('channel → mongodb:27017');
  });
});

describe('ways in and out', () => {
  it('lead to resolvers, the API server and models only, in an evaluation', () => {
    const edges = new Set(outerEdges(render()).map((edge) => edge.replace(/^margay-(?!workspaces)/, '')));
    const dns = ['agent-runner', 'channel', 'check', 'egress', 'gateway', 'ide-manager', 'mcp-pool', 'migrate', 'session', 'tool-executor'].flatMap((name) => [`${name} → kube-system/kube-dns:53`, `${name} → kube-system/kube-dns:53/udp`]); // prettier-ignore
    const api = ['bootstrap', 'tool-executor'].flatMap((name) => ['0.0.0.0/0', '::/0'].flatMap((cidr) => [443, 6443].map((port) => `${name} → ${cidr}:${port}`))); // prettier-ignore
    const models = ['0.0.0.0/0', '::/0'].map((cidr) => `agent-runner → ${cidr}:443`);
    const sandboxes = [
      'tool-executor → margay-workspaces/margay,sandbox,agents.margay:7777',
      'margay-workspaces/margay,sandbox,proxy,agents.margay:3128 → margay-egress',
    ];
    const outside = ['0.0.0.0/0', '2000::/3'].map((cidr) => `egress → ${cidr}:1-65535`);
    expect([...edges].sort()).toEqual([...dns, ...api, ...models, ...sandboxes, ...outside].sort());
  });

  it('let the ingress controller reach the gateway, and monitoring the management ports', () => {
    const production = readChartYaml('ci/production.yaml') as object;
    const edges = outerEdges(render(production));
    expect(edges).toContain('ingress-nginx/*:8080 → margay-gateway');
    for (const name of [
      'gateway',
      'session',
      'agent-runner',
      'tool-executor',
      'mcp-pool',
      'ide-manager',
      'channel',
      'egress',
    ])
      for (const from of ['monitoring', 'keda']) expect(edges).toContain(`${from}/*:9464 → margay-${name}`);
    expect(edges).toEqual(expect.arrayContaining(['margay-session → 203.0.113.0/28:27017', 'margay-gateway → 203.0.113.16/28:4222', 'margay-agent-runner → 198.51.100.0/24:443', 'margay-tool-executor → 192.0.2.1/32:443'])); // prettier-ignore
    expect(edges.filter((edge) => edge.includes('0.0.0.0/0'))).toEqual(['margay-egress → 0.0.0.0/0:1-65535']);
  });

  it('keep runners from addresses of the link, where clouds answer with credentials', () => {
    const { spec } = find(render(), 'NetworkPolicy', 'margay-agent-runner');
    const blocks = JSON.stringify(spec.egress);
    expect(blocks).toContain('"except":["169.254.0.0/16"]');
  });

  it('keep the proxy to what is public, as its own code does, and to what the operator excepts', () => {
    const source = readFileSync(join(__dirname, '../../services/egress/src/address/address-guard.ts'), 'utf8');
    const lists = [...source.matchAll(/SPECIAL_V[46] = \[([^\]]+)\]/g)].map(([, list = '']) => list.match(/[\da-f:.]+\/\d+/g) ?? []); // prettier-ignore
    const rules = find(render(), 'NetworkPolicy', 'margay-egress').spec.egress;
    const blocks = rules.flatMap(({ to }: { to: Peer[] }) => to).flatMap(({ ipBlock }: Peer) => ipBlock ?? []);
    expect(lists.map((list) => list.length)).toEqual([14, 4]);
    expect(blocks).toEqual([
      { cidr: '0.0.0.0/0', except: lists[0] },
      { cidr: '2000::/3', except: lists[1] },
    ]);
  });

  it('lead to a resolver on the node where there is one', () => {
    const networkPolicy = { dns: { cidrs: ['169.254.20.10/32'] } };
    const edges = outerEdges(render({ ...EVALUATION, networkPolicy }));
    expect(edges).toEqual(expect.arrayContaining(['margay-channel → 169.254.20.10/32:53', 'margay-channel → 169.254.20.10/32:53/udp', 'margay-channel → kube-system/kube-dns:53'])); // prettier-ignore
    expect(edges.filter((edge) => edge.includes('169.254') && !edge.includes(':53'))).toEqual([]);
  });

  it('lead from tool-executor to what tools of the operator call, where there are any', () => {
    const values = readChartYaml('ci/own-workspaces.yaml') as object;
    expect(outerEdges(render(values))).toContain('margay-tool-executor → 203.0.113.40/32:8443');
    const without = { ...values, toolExecutor: { httpToolsDirect: true } };
    expect(outerEdges(render(without)).filter((edge) => edge.includes('203.0.113.40'))).toEqual([]);
  });

  it('take the cluster’s own ranges out, of the proxy and of the runners', () => {
    const objects = render(readChartYaml('ci/egress.yaml') as object);
    for (const name of ['margay-egress', 'margay-agent-runner']) {
      const { spec } = find(objects, 'NetworkPolicy', name);
      const taken = JSON.stringify(spec.egress).match(/"except":\[[^\]]*\]/g) ?? [];
      expect([name, taken.map((list) => /198\.51\.100\.0|2001:db8:1::/.test(list))]).toEqual([name, [true, true]]);
    }
    expect(outerEdges(objects)).toEqual(expect.arrayContaining(['margay-egress → 192.0.2.8/32:443', 'margay-egress → 192.0.2.8/32:8443', 'margay-egress → house-git/git:8443'])); // prettier-ignore
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

  it('make exceptions within their ranges only, or the API server would refuse them', () => {
    for (const { metadata, spec } of policies)
      for (const peer of [...(spec.ingress ?? []), ...(spec.egress ?? [])].flatMap(({ from, to }) => from ?? to)) {
        const { cidr = '', except = [] } = (peer as Peer).ipBlock ?? {};
        for (const exception of except) expect([metadata.name, exception, isWithin(cidr, exception)]).toEqual([metadata.name, exception, true]); // prettier-ignore
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
    const denied = policies.filter(({ spec }) => JSON.stringify(spec.podSelector) === '{}');
    for (const { spec } of denied) expect(spec.policyTypes).toEqual(['Ingress', 'Egress']);
    const rightsIn = ofKind(objects, 'Role').filter(({ metadata }) => metadata.name.endsWith('-tool-executor'));
    expect(denied.map(({ metadata }) => metadata.namespace)).toEqual(rightsIn.map(({ metadata }) => metadata.namespace)); // prettier-ignore
  });
});

describe('a job that prepares the store', () => {
  it('gets to the bundled server by a door that goes with it', () => {
    const door = find(render(), 'NetworkPolicy', 'margay-mongodb-migrate');
    expect(door.metadata.annotations).toMatchObject({
      'helm.sh/hook': 'pre-upgrade',
      'helm.sh/hook-delete-policy': 'before-hook-creation,hook-succeeded',
    });
    expect(JSON.stringify(find(render(), 'NetworkPolicy', 'margay-mongodb').spec)).not.toContain('migrate');
  });

  it('gets to one of your own as everybody else does', () => {
    const rules = find(render(EXTERNAL), 'NetworkPolicy', 'margay-migrate').spec.egress;
    expect(rules.at(-1)).toEqual({ to: [{ ipBlock: { cidr: '203.0.113.0/28' } }], ports: [{ protocol: 'TCP', port: 27017 }] }); // prettier-ignore
  });
});

describe('a restore', () => {
  it('reaches the store, although no backup is made', () => {
    const values = { ...EVALUATION, restore: { enabled: true }, backup: { existingClaim: 'b' } };
    expect(allowedEdges(render(values), SANDBOX)).toContain('backup → mongodb:27017');
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
    expect(outerEdges(render(monitored)).filter((edge) => edge.includes('9464'))).toHaveLength(8);
    expect(find(render(), 'Service', 'margay-gateway').spec.ports).toEqual([{ name: 'http', port: 80, targetPort: 'http', appProtocol: 'http' }]); // prettier-ignore
  });
});

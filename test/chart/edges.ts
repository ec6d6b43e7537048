import { ofKind, podsOf, type KubernetesObject } from './render';

export interface Peer {
  podSelector?: { matchLabels?: Record<string, string> };
  namespaceSelector?: { matchLabels?: Record<string, string> };
  ipBlock?: { cidr: string; except?: string[] };
}
interface Rule {
  from?: Peer[];
  to?: Peer[];
  ports?: Ports[];
}
interface Ports {
  protocol: string;
  port: number;
  endPort?: number;
}
interface Actor {
  name: string;
  namespace: string;
  labels: Record<string, string>;
  ports: number[];
}

const matches = (labels: Record<string, string>, wanted: Record<string, string> = {}) =>
  Object.entries(wanted).every(([key, value]) => labels[key] === value);

/** All connections that the policies allow between pods of the chart, sandboxes included: `from → to:port`. */
export function allowedEdges(
  objects: KubernetesObject[],
  sandbox: { namespace: string; labels: Record<string, string> },
): string[] {
  const policies = ofKind(objects, 'NetworkPolicy');
  const actors = actorsOf(objects, sandbox);
  return actors
    .flatMap((from) => actors.flatMap((to) => to.ports.map((port) => ({ from, to, port }))))
    .filter(({ from, to, port }) => mayLeave(policies, from, to, port) && mayEnter(policies, from, to, port))
    .map(({ from, to, port }) => `${from.name} → ${to.name}:${port}`)
    .filter((edge, index, all) => all.indexOf(edge) === index)
    .sort();
}

function actorsOf(
  objects: KubernetesObject[],
  sandbox: { namespace: string; labels: Record<string, string> },
): Actor[] {
  const actors = podsOf(objects).map(({ owner, labels, spec }): Actor => ({
    name: labels['app.kubernetes.io/component'] ?? owner.metadata.name,
    namespace: owner.metadata.namespace ?? '',
    labels,
    ports: spec.containers.flatMap((container: { ports?: { containerPort: number }[] }) =>
      (container.ports ?? []).map(({ containerPort }) => containerPort),
    ),
  }));
  return [...actors, { name: 'sandbox', ...sandbox, ports: [7777, 22] }];
}

const policiesOf = (policies: KubernetesObject[], { namespace, labels }: Actor, direction: string) =>
  policies.filter(
    ({ metadata, spec }) =>
      metadata.namespace === namespace &&
      spec.policyTypes.includes(direction) &&
      matches(labels, spec.podSelector.matchLabels),
  );

/** A pod that no policy selects may do anything. */
function mayLeave(policies: KubernetesObject[], from: Actor, to: Actor, port: number): boolean {
  const own = policiesOf(policies, from, 'Egress');
  return own.length === 0 || own.some(({ metadata, spec }) => allows(spec.egress, 'to', to, port, metadata.namespace));
}

function mayEnter(policies: KubernetesObject[], from: Actor, to: Actor, port: number): boolean {
  const own = policiesOf(policies, to, 'Ingress');
  return (
    own.length === 0 || own.some(({ metadata, spec }) => allows(spec.ingress, 'from', from, port, metadata.namespace))
  );
}

function allows(rules: Rule[] | undefined, side: 'from' | 'to', other: Actor, port: number, home = ''): boolean {
  return (rules ?? []).some((rule) => {
    const isPort =
      rule.ports === undefined ||
      rule.ports.some((allowed) => allowed.port <= port && port <= (allowed.endPort ?? allowed.port));
    const peers = rule[side];
    return isPort && (peers === undefined || peers.length === 0 || peers.some((peer) => isPeer(peer, other, home)));
  });
}

function isPeer({ podSelector, namespaceSelector, ipBlock }: Peer, other: Actor, home: string): boolean {
  // Pods are meant by their labels; ranges are for what lies outside.
  if (ipBlock) return false;
  const isThere = namespaceSelector
    ? matches({ 'kubernetes.io/metadata.name': other.namespace }, namespaceSelector.matchLabels)
    : other.namespace === home;
  return isThere && matches(other.labels, podSelector?.matchLabels);
}

/** What leads out of the chart: `from → peer:port`, and in: `peer → to:port`. */
export function outerEdges(objects: KubernetesObject[]): string[] {
  return ofKind(objects, 'NetworkPolicy').flatMap(({ metadata, spec }) => {
    const text = (peer: Peer) => peer.ipBlock?.cidr ?? Object.values(peer.namespaceSelector?.matchLabels ?? {}).join() + `/${Object.values(peer.podSelector?.matchLabels ?? { all: '*' }).join()}`; // prettier-ignore
    const isOuter = (peer: Peer) => peer.podSelector?.matchLabels?.['app.kubernetes.io/name'] !== 'margay';
    const ends = (rule: Rule, peers: Peer[] = []) => peers.filter(isOuter).flatMap((peer) => (rule.ports ?? []).map(({ protocol, port, endPort }) => `${text(peer)}:${port}${endPort === undefined ? '' : `-${endPort}`}${protocol === 'UDP' ? '/udp' : ''}`)); // prettier-ignore
    return [
      ...((spec.egress ?? []) as Rule[]).flatMap((rule) =>
        ends(rule, rule.to).map((end) => `${metadata.name} → ${end}`),
      ),
      ...((spec.ingress ?? []) as Rule[]).flatMap((rule) =>
        ends(rule, rule.from).map((end) => `${end} → ${metadata.name}`),
      ),
    ];
  });
}

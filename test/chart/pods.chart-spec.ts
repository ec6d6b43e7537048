import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import {
  CHART,
  containersOf,
  environmentOf,
  EVALUATION,
  find,
  ofKind,
  podsOf,
  readChartYaml,
  render,
  type KubernetesObject,
} from './render';

const SETS = readdirSync(join(CHART, 'ci')).filter((name) => name.endsWith('.yaml'));
const objectsOf = (set: string) => render(readChartYaml(`ci/${set}`) as object);
const nameOf = ({ kind, metadata }: KubernetesObject) => `${kind} ${metadata.name}`;
/** Only these may speak to the API server. */
const WITH_TOKEN = /tool-executor$|control$|bootstrap$|release-sandboxes$/;

describe.each(SETS)('every pod of %s', (set) => {
  const pods = podsOf(objectsOf(set));

  it('fits Pod Security restricted, with a read-only root', () => {
    expect(pods.length).toBeGreaterThanOrEqual(4);
    for (const pod of pods) {
      const { securityContext: own, hostNetwork, hostPID, hostIPC } = pod.spec;
      expect([nameOf(pod.owner), own]).toMatchObject([
        nameOf(pod.owner),
        { runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } },
      ]);
      expect(own.runAsUser).toBeGreaterThan(0);
      expect([hostNetwork, hostPID, hostIPC]).toEqual([undefined, undefined, undefined]);
      for (const { securityContext } of containersOf(pod))
        expect(securityContext).toEqual({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        });
      for (const volume of pod.spec.volumes) expect(Object.keys(volume)).not.toContain('hostPath');
      for (const { emptyDir } of pod.spec.volumes) if (emptyDir) expect(emptyDir.sizeLimit).toMatch(/^\d+[MG]i$/);
    }
  });

  it('mounts a token only where rights stand', () => {
    for (const { owner, spec } of pods)
      expect([nameOf(owner), spec.automountServiceAccountToken]).toEqual([
        nameOf(owner),
        WITH_TOKEN.test(owner.metadata.name),
      ]);
    for (const account of ofKind(objectsOf(set), 'ServiceAccount'))
      expect(account.automountServiceAccountToken).toBe(false);
  });

  it('gets no variables of services, and knows its pull secrets', () => {
    const { image } = readChartYaml(`ci/${set}`) as { image?: { pullSecrets?: string[] } };
    const secrets = image?.pullSecrets?.map((name) => ({ name }));
    for (const { spec } of pods) {
      expect(spec.enableServiceLinks).toBe(false);
      expect(spec.imagePullSecrets).toEqual(secrets);
    }
  });

  it('asks for what it needs and is bounded in memory, never in CPU', () => {
    for (const pod of pods)
      for (const { resources } of containersOf(pod)) {
        expect(resources.requests).toMatchObject({ cpu: expect.anything(), memory: expect.anything() });
        expect(resources.limits.memory).toMatch(/^\d+[MG]i$/);
        expect(resources.limits.cpu).toBeUndefined();
      }
  });

  it('is asked over its ports, never by the name of a process', () => {
    for (const pod of pods)
      for (const container of containersOf(pod)) {
        for (const probe of ['startupProbe', 'livenessProbe', 'readinessProbe'])
          expect(container[probe]?.exec).toBeUndefined();
        const names = (container.ports ?? []).map(({ name }: { name: string }) => name);
        for (const probe of [container.startupProbe, container.livenessProbe, container.readinessProbe])
          if (probe) expect(names).toContain((probe.httpGet ?? probe.tcpSocket).port);
      }
  });

  it('mounts every volume it has, and has every volume it mounts', () => {
    for (const pod of pods) {
      const claims = pod.owner.spec.volumeClaimTemplates ?? [];
      const there = [...pod.spec.volumes, ...claims.map(({ metadata }: KubernetesObject) => metadata)].map(
        ({ name }) => name,
      );
      const mounted = containersOf(pod).flatMap(({ volumeMounts }) =>
        volumeMounts.map(({ name }: { name: string }) => name),
      );
      expect(there.sort()).toEqual([...new Set(mounted)].sort());
    }
  });
});

describe.each([
  ['split', EVALUATION],
  ['combined', { ...EVALUATION, mode: 'combined' }],
])('services in mode %s', (mode, values) => {
  const objects = render(values);
  const deployments = ofKind(objects, 'Deployment');

  it('run each service once, the runner and the proxy alone', () => {
    const services = deployments.map(({ spec }) => spec.template.spec.containers[0].args[1].split(','));
    expect(services.flat().sort()).toEqual(['agent-runner', 'channel', 'egress', 'gateway', 'ide-manager', 'mcp-pool', 'session', 'tool-executor']); // prettier-ignore
    expect(services).toEqual(expect.arrayContaining([['agent-runner'], ['egress']]));
    expect(services).toHaveLength(mode === 'split' ? 8 : 3);
  });

  it('have a new pod before an old one goes', () => {
    for (const { spec } of deployments) expect(spec.strategy.rollingUpdate).toEqual({ maxUnavailable: 0, maxSurge: 1 });
  });

  it('have time to hand over: grace of at least drain + 15 s, the wait for load balancers included', () => {
    for (const deployment of deployments) {
      const { terminationGracePeriodSeconds, containers } = deployment.spec.template.spec;
      const { MARGAY_SHUTDOWN_LIMIT_SECONDS: limit, MARGAY_EGRESS_DRAIN_SECONDS: drain = limit } = environmentOf(deployment); // prettier-ignore
      const wait = containers[0].lifecycle?.preStop.sleep.seconds ?? 0;
      expect(terminationGracePeriodSeconds).toBeGreaterThanOrEqual(Number(drain) + 15);
      expect(terminationGracePeriodSeconds).toBeGreaterThanOrEqual(Number(limit) + wait + 5);
      expect(Number(limit)).toBeGreaterThanOrEqual(Number(drain));
    }
  });

  it('answer probes as docs/operating.md says', () => {
    for (const { spec } of deployments) {
      const [{ startupProbe, livenessProbe, readinessProbe }] = spec.template.spec.containers;
      expect(startupProbe).toEqual({ httpGet: { path: '/startupz', port: 'management' }, periodSeconds: 1, timeoutSeconds: 2, failureThreshold: 60 }); // prettier-ignore
      expect(livenessProbe).toEqual({ httpGet: { path: '/livez', port: 'management' }, periodSeconds: 10, timeoutSeconds: 2, failureThreshold: 3 }); // prettier-ignore
      expect(readinessProbe).toEqual({ httpGet: { path: '/readyz', port: 'management' }, periodSeconds: 5, timeoutSeconds: 2, failureThreshold: 2 }); // prettier-ignore
    }
  });

  it('keep the heap within the memory limit', () => {
    for (const deployment of deployments) {
      const [, heap] = /--max-old-space-size=(\d+)/.exec(String(environmentOf(deployment).NODE_OPTIONS)) ?? [];
      const limit: string = deployment.spec.template.spec.containers[0].resources.limits.memory;
      const mebibytes = limit.endsWith('Gi') ? 1024 * Number.parseInt(limit) : Number.parseInt(limit);
      expect(Number(heap)).toBeLessThanOrEqual(mebibytes * 0.75);
      expect(Number(heap)).toBeGreaterThan(100);
    }
  });

  it('hold their own key each, and no other one', () => {
    for (const { spec } of deployments) {
      const { containers, volumes } = spec.template.spec;
      const services: string[] = containers[0].args[1].split(',');
      const { sources } = volumes.find(({ name }: { name: string }) => name === 'keys').projected;
      const [own, replaced] = sources.map(({ secret }: { secret: { items: { key: string }[]; optional?: boolean } }) => secret); // prettier-ignore
      const filesOf = ({ items }: { items: { key: string }[] }) => items.map(({ key }) => key).sort();
      expect(filesOf(own)).toEqual(['trust.json', ...services.map((name) => `${name}.key.pem`)].sort());
      expect(own.optional).toBeUndefined();
      // There while keys are being replaced.
      expect(filesOf(replaced)).toEqual(services.flatMap((name) => [`${name}.old.pem`, `${name}.next.pem`]).sort());
      expect(replaced.optional).toBe(true);
    }
  });

  it('find each other by Services that exist, on ports that listen', () => {
    for (const deployment of deployments)
      for (const [name, address] of Object.entries(environmentOf(deployment))) {
        if (!/^MARGAY_(SESSION|TOOL_EXECUTOR)_URL$/.test(name)) continue;
        const [host = '', port] = String(address).split(':');
        const listens = environmentOf(host === '127.0.0.1' ? deployment : find(objects, 'Deployment', host))[
          name.replace('_URL', '_LISTEN')
        ];
        expect(listens).toBe(`0.0.0.0:${port}`);
        if (host === '127.0.0.1') continue;
        const service = find(objects, 'Service', host);
        expect(service.spec.clusterIP).toBe('None');
        expect(service.spec.ports).toContainEqual(expect.objectContaining({ port: Number(port) }));
      }
  });

  it('spread over zones and hosts, each rollout by itself', () => {
    for (const { spec } of deployments) {
      const constraints = spec.template.spec.topologySpreadConstraints;
      expect(constraints.map(({ topologyKey }: { topologyKey: string }) => topologyKey)).toEqual(['topology.kubernetes.io/zone', 'kubernetes.io/hostname']); // prettier-ignore
      for (const { labelSelector, matchLabelKeys } of constraints) {
        expect(labelSelector.matchLabels).toEqual(spec.selector.matchLabels);
        expect(matchLabelKeys).toEqual(['pod-template-hash']);
      }
    }
  });

  it('never let two workloads take each other for their own', () => {
    const workloads = [...deployments, ...ofKind(objects, 'StatefulSet')];
    for (const one of workloads)
      for (const other of workloads) {
        const labels = other.spec.template.metadata.labels;
        const selects = Object.entries(one.spec.selector.matchLabels).every(([key, value]) => labels[key] === value);
        expect([nameOf(one), nameOf(other), selects]).toEqual([nameOf(one), nameOf(other), one === other]);
      }
  });
});

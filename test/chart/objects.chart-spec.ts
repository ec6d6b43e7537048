import { EVALUATION, find, notes, ofKind, readChartYaml, render, type KubernetesObject } from './render';

const PEER = [{ podSelector: { matchLabels: { a: 'b' } } }];
const KEDA = { ...EVALUATION, networkPolicy: { monitoringFrom: PEER } };
const MONITORING = 'monitoring.coreos.com/v1';
const namesOf = (objects: KubernetesObject[], kind: string) =>
  ofKind(objects, kind).map(({ metadata }) => metadata.name);

describe('disruption budgets', () => {
  it('let one pod go at a time, where there are two; a single pod has none, since it would block every drain', () => {
    const objects = render();
    expect(namesOf(objects, 'PodDisruptionBudget').sort()).toEqual(['margay-agent-runner', 'margay-egress', 'margay-gateway', 'margay-mcp-pool', 'margay-session', 'margay-tool-executor']); // prettier-ignore
    for (const { spec } of ofKind(objects, 'PodDisruptionBudget'))
      expect(spec).toMatchObject({ maxUnavailable: 1, unhealthyPodEvictionPolicy: 'AlwaysAllow' });
  });

  it('go with the replicas', () => {
    expect(namesOf(render({ ...EVALUATION, session: { replicas: 1 } }), 'PodDisruptionBudget')).not.toContain('margay-session'); // prettier-ignore
    expect(namesOf(render({ ...EVALUATION, channel: { replicas: 3 } }), 'PodDisruptionBudget')).toContain('margay-channel'); // prettier-ignore
    expect(namesOf(render({ ...EVALUATION, mode: 'combined' }), 'PodDisruptionBudget').sort()).toEqual([
      'margay-agent-runner',
      'margay-egress',
    ]);
  });

  it('go with the fewest pods where something scales', () => {
    const scaled = (minReplicas: number) => namesOf(render({ ...KEDA, runner: { autoscaling: { driver: 'keda', minReplicas } } }), 'PodDisruptionBudget'); // prettier-ignore
    expect(scaled(2)).toContain('margay-agent-runner');
    expect(scaled(1)).not.toContain('margay-agent-runner');
  });

  it('select the pods of their own workload', () => {
    const objects = render(readChartYaml('ci/pools.yaml') as object);
    expect(find(objects, 'PodDisruptionBudget', 'margay-agent-runner-large').spec.selector.matchLabels).toMatchObject({ 'margay.dev/pool': 'large' }); // prettier-ignore
    expect(namesOf(objects, 'PodDisruptionBudget')).not.toContain('margay-agent-runner');
  });
});

describe('scaling of runners', () => {
  it('is off unless asked for, and replicas are as set', () => {
    const objects = render();
    expect([...ofKind(objects, 'ScaledObject'), ...ofKind(objects, 'HorizontalPodAutoscaler')]).toEqual([]);
    expect(find(objects, 'Deployment', 'margay-agent-runner').spec.replicas).toBe(2);
  });

  it('goes by demand, running runs included, so that no busy runner counts as idle', () => {
    const objects = render({ ...KEDA, runner: { autoscaling: { driver: 'keda' } } });
    const { spec } = find(objects, 'ScaledObject', 'margay-agent-runner');
    expect(spec.triggers).toEqual([
      {
        type: 'metrics-api',
        metadata: {
          url: 'http://margay-session.agents.svc:9464/internal/demand/default',
          valueLocation: 'demand',
          targetValue: '80',
        },
      },
    ]);
    expect(spec).toMatchObject({ minReplicaCount: 2, maxReplicaCount: 20, pollingInterval: 10 });
    expect(find(objects, 'Deployment', 'margay-agent-runner').spec).not.toHaveProperty('replicas');
  });

  it('asks control in mode combined', () => {
    const objects = render({ ...KEDA, mode: 'combined', runner: { autoscaling: { driver: 'keda' } } });
    expect(JSON.stringify(ofKind(objects, 'ScaledObject'))).toContain('http://margay-control.agents.svc:9464/');
  });

  it('gives each pool its own target', () => {
    const pools = [
      { name: 'default', replicas: 1, slots: 100 },
      { name: 'small', replicas: 1, slots: 1 },
    ];
    const objects = render({ ...KEDA, runner: { pools, autoscaling: { driver: 'keda', targetShare: 0.5 } } });
    const targets = ofKind(objects, 'ScaledObject').map(({ spec }) => [spec.scaleTargetRef.name, spec.triggers[0].metadata.targetValue]); // prettier-ignore
    expect(targets).toEqual([
      ['margay-agent-runner', '50'],
      ['margay-agent-runner-small', '1'],
    ]);
  });

  it('takes one pod a minute away, after five minutes', () => {
    const slow = { stabilizationWindowSeconds: 300, policies: [{ type: 'Pods', value: 1, periodSeconds: 60 }] };
    const keda = ofKind(render({ ...KEDA, runner: { autoscaling: { driver: 'keda' } } }), 'ScaledObject')[0];
    expect(keda?.spec.advanced.horizontalPodAutoscalerConfig.behavior.scaleDown).toEqual(slow);
    const hpa = find(render({ ...EVALUATION, runner: { autoscaling: { driver: 'hpa' } } }), 'HorizontalPodAutoscaler', 'margay-agent-runner'); // prettier-ignore
    expect(hpa.spec.behavior.scaleDown).toEqual(slow);
  });

  it('takes the same metric through an adapter, per pool', () => {
    const objects = render({ ...EVALUATION, runner: { autoscaling: { driver: 'hpa' } } });
    expect(find(objects, 'HorizontalPodAutoscaler', 'margay-agent-runner').spec.metrics[0].external).toEqual({
      metric: { name: 'margay_dispatch_demand_runs', selector: { matchLabels: { pool: 'default' } } },
      target: { type: 'AverageValue', averageValue: '80' },
    });
  });

  it('of the gateway goes by CPU', () => {
    const objects = render({ ...EVALUATION, gateway: { autoscaling: { enabled: true, targetCpu: 60 } } });
    const { spec } = find(objects, 'HorizontalPodAutoscaler', 'margay-gateway');
    expect(spec.metrics[0].resource).toEqual({ name: 'cpu', target: { type: 'Utilization', averageUtilization: 60 } });
    expect(find(objects, 'Deployment', 'margay-gateway').spec).not.toHaveProperty('replicas');
  });
});

describe('rights', () => {
  it('of tool-executor: pods and volumes of the workspaces, nothing here and nothing in the cluster', () => {
    const objects = render();
    expect([...ofKind(objects, 'ClusterRole'), ...ofKind(objects, 'ClusterRoleBinding')]).toEqual([]);
    const role = find(objects, 'Role', 'margay-tool-executor');
    expect(role.metadata.namespace).toBe('margay-workspaces');
    expect(role.rules).toEqual([
      { apiGroups: [''], resources: ['pods', 'persistentvolumeclaims'], verbs: ['get', 'list', 'watch', 'create', 'patch', 'delete'] }, // prettier-ignore
      { apiGroups: [''], resources: ['events', 'resourcequotas'], verbs: ['get', 'list', 'watch'] },
    ]);
    expect(find(objects, 'RoleBinding', 'margay-tool-executor').subjects).toEqual([{ kind: 'ServiceAccount', name: 'margay-tool-executor', namespace: 'agents' }]); // prettier-ignore
  });

  it('in the cluster, where cordons are watched: to see nodes', () => {
    const objects = render({ ...EVALUATION, sandbox: { watchNodes: true } });
    const { metadata, rules } = find(objects, 'ClusterRole', 'agents-margay-nodes');
    expect(metadata.namespace).toBeUndefined();
    expect(rules).toEqual([{ apiGroups: [''], resources: ['nodes'], verbs: ['get', 'list', 'watch'] }]);
    const { roleRef, subjects } = find(objects, 'ClusterRoleBinding', 'agents-margay-nodes');
    expect(roleRef).toMatchObject({ kind: 'ClusterRole', name: 'agents-margay-nodes' });
    expect(subjects).toEqual([{ kind: 'ServiceAccount', name: 'margay-tool-executor', namespace: 'agents' }]);
    expect(ofKind(objects, 'ClusterRole')).toHaveLength(1);
    const { env } = find(objects, 'Deployment', 'margay-tool-executor').spec.template.spec.containers[0];
    expect(env).toContainEqual({ name: 'MARGAY_WATCH_NODES', value: 'true' });
  });

  it('go to control in mode combined', () => {
    const objects = render({ ...EVALUATION, mode: 'combined' });
    expect(find(objects, 'RoleBinding', 'margay-tool-executor').subjects[0].name).toBe('margay-control');
    expect(find(objects, 'ServiceAccount', 'margay-control').metadata.namespace).toBe('agents');
  });

  const MADE_BY_THE_HOOK = [
    ...['egress-ca', 'first-key', 'kek', 'keys', 'nats', 'tls-agent-runner', 'tls-ca', 'tls-channel', 'tls-egress'],
    ...['tls-gateway', 'tls-ide-manager', 'tls-mcp-pool', 'tls-session', 'tls-tool-executor'],
  ].map((name) => `margay-${name}`);

  it('never include secrets but for the hook, and there only its own by name', () => {
    for (const { metadata, rules } of ofKind(render(), 'Role'))
      for (const { resources, verbs, resourceNames } of rules) {
        expect(resources).not.toContain('*');
        expect(verbs).not.toContain('*');
        if (!resources.includes('secrets')) continue;
        expect(metadata.name).toBe('margay-bootstrap');
        if (verbs.join() !== 'create') expect(resourceNames).toEqual(MADE_BY_THE_HOOK);
      }
  });

  it('each component has an account of its own, and pools share theirs', () => {
    const objects = render(readChartYaml('ci/pools.yaml') as object);
    const accounts = namesOf(objects, 'ServiceAccount');
    expect(new Set(accounts).size).toBe(accounts.length);
    for (const { spec } of ofKind(objects, 'Deployment'))
      expect(accounts).toContain(spec.template.spec.serviceAccountName);
  });
});

describe('the hook that makes secrets', () => {
  const job = (values: object) =>
    ofKind(render(values), 'Job').find(({ metadata }) => metadata.name === 'margay-bootstrap');
  /** Without certificates, which have tests of their own. */
  const argsOf = (values: object): string[] =>
    job({ ...values, tls: { mode: 'off' } })?.spec.template.spec.containers[0].args.join(' ');

  it('makes keys, the key of secrets, first key and the password of the broker, before everything else', () => {
    expect(argsOf(EVALUATION)).toBe('bootstrap --namespace agents --instance margay --egress-ca margay-egress-ca --first-key margay-first-key --kek margay-kek --keys margay-keys --nats margay-nats'); // prettier-ignore
    expect(job(EVALUATION)?.metadata.annotations).toMatchObject({ 'helm.sh/hook': 'pre-install,pre-upgrade' });
  });

  it('comes after its account, role and way to the API server', () => {
    const hooks = render().filter(({ metadata }) => metadata.annotations?.['helm.sh/hook']?.startsWith('pre-install'));
    const weightOf = (kind: string) => Number(hooks.find((hook) => hook.kind === kind)?.metadata.annotations?.['helm.sh/hook-weight']); // prettier-ignore
    expect(hooks.map(({ kind }) => kind).sort()).toEqual(['Job', 'NetworkPolicy', 'Role', 'RoleBinding', 'ServiceAccount']); // prettier-ignore
    expect(weightOf('Role')).toBeLessThan(weightOf('RoleBinding'));
    for (const kind of ['RoleBinding', 'NetworkPolicy', 'ServiceAccount']) expect(weightOf(kind)).toBeLessThan(weightOf('Job')); // prettier-ignore
  });

  it('leaves alone what you make yourself', () => {
    expect(argsOf({ ...EVALUATION, secrets: { existingFirstKey: 'mine' } })).not.toContain('first-key');
    expect(argsOf({ ...EVALUATION, secrets: { kek: { existingSecret: 'own' } } })).not.toContain('--kek');
    expect(argsOf({ ...EVALUATION, secrets: { existingEgressAuthority: 'own' } })).not.toContain('egress-ca');
    expect(argsOf({ ...EVALUATION, secrets: { mode: 'existing', existingSecret: 'k', kek: { existingSecret: 'own' } } })).toBe('bootstrap --namespace agents --instance margay --nats margay-nats'); // prettier-ignore
    expect(job(readChartYaml('ci/production.yaml') as object)).toBeUndefined();
  });

  it('is the only one that makes secrets: the chart holds none', () => {
    expect(ofKind(render(), 'Secret')).toEqual([]);
  });
});

describe('the hook that prepares the store', () => {
  const job = (values: object = EVALUATION) => find(render(values), 'Job', 'margay-migrate');

  it('comes before an upgrade, after the secrets and the way to the store, and never at an installation', () => {
    const hooks = render().filter(({ metadata }) => metadata.annotations?.['helm.sh/hook'] === 'pre-upgrade');
    expect(hooks.map(({ kind, metadata }) => `${kind} ${metadata.name}`).sort()).toEqual(['Job margay-migrate', 'NetworkPolicy margay-migrate', 'NetworkPolicy margay-mongodb-migrate']); // prettier-ignore
    const weightOf = ({ metadata }: KubernetesObject) => Number(metadata.annotations?.['helm.sh/hook-weight']);
    const bootstrap = find(render(), 'Job', 'margay-bootstrap');
    for (const policy of ofKind(hooks, 'NetworkPolicy')) expect(weightOf(policy)).toBeLessThan(weightOf(job()));
    expect(weightOf(bootstrap)).toBeLessThan(weightOf(job()));
  });

  it('has ten minutes, the store, and nothing else', () => {
    const { spec } = job();
    expect(spec).toMatchObject({ activeDeadlineSeconds: 600 });
    const { containers, serviceAccountName, automountServiceAccountToken } = spec.template.spec;
    expect([containers[0].args, serviceAccountName, automountServiceAccountToken]).toEqual([['migrate'], undefined, false]); // prettier-ignore
    const names = containers[0].env.map(({ name }: { name: string }) => name);
    expect(names).toEqual(['HOME', 'MARGAY_MONGODB_DATABASE', 'MARGAY_MONGODB_URL']);
  });

  it('may be left to you', () => {
    expect(namesOf(render({ ...EVALUATION, migrations: { enabled: false } }), 'Job')).not.toContain('margay-migrate');
  });
});

describe('a restore', () => {
  const objects = render(readChartYaml('ci/restore.yaml') as object);

  it('runs no pod of the platform, and nothing that would start one', () => {
    for (const { metadata, spec } of ofKind(objects, 'Deployment')) expect([metadata.name, spec.replicas]).toEqual([metadata.name, 0]); // prettier-ignore
    expect([...ofKind(objects, 'HorizontalPodAutoscaler'), ...ofKind(objects, 'ScaledObject')]).toEqual([]);
    for (const { spec } of ofKind(objects, 'CronJob')) expect(spec.suspend).toBe(true);
    expect(namesOf(objects, 'Job')).not.toContain('margay-migrate');
  });

  it('brings back the backup that is named, or the newest one', () => {
    const job = find(objects, 'Job', 'margay-restore-1');
    // No hook: it must come after the pods have gone, and go with the next upgrade.
    expect(job.metadata.annotations).toBeUndefined();
    const [container] = job.spec.template.spec.containers;
    expect(container.args).toEqual(['restore', '--from', '/margay/backup/20261130T031700Z', '--quiet-seconds', '120']);
    expect(container.env).toContainEqual({ name: 'MARGAY_MONGODB_DATABASE', value: 'margay_g1' });
    const newest = render({ ...EVALUATION, restore: { enabled: true }, backup: { existingClaim: 'b' } });
    const { spec } = find(newest, 'Job', 'margay-restore-1').spec.template;
    expect(spec.containers[0].args.slice(0, 3)).toEqual(['restore', '--from', '/margay/backup']);
    expect(JSON.stringify(spec.volumes)).toContain('"claimName":"b"');
  });

  it('is none unless asked for, and leaves replicas as they are', () => {
    expect(namesOf(render(readChartYaml('ci/backup.yaml') as object), 'Job')).not.toContain('margay-restore-1');
    for (const { spec } of ofKind(render(), 'Deployment')) expect(spec.replicas).toBeGreaterThan(0);
  });
});

describe('further namespaces of sandboxes', () => {
  const objects = render(readChartYaml('ci/egress.yaml') as object);
  const inNamespace = (namespace: string) => objects.filter(({ metadata }) => metadata.namespace === namespace).map(({ kind, metadata }) => `${kind} ${metadata.name}`).sort(); // prettier-ignore
  const usual = ['LimitRange margay', 'NetworkPolicy margay-default-deny', 'NetworkPolicy margay-sandbox', 'NetworkPolicy margay-sandbox-egress', 'Role margay-release-sandboxes', 'Role margay-tool-executor', 'RoleBinding margay-release-sandboxes', 'RoleBinding margay-tool-executor']; // prettier-ignore

  it('have the same rights, limits and policies as the first', () => {
    expect(inNamespace('margay-workspaces')).toEqual(usual);
    expect(inNamespace('team-a')).toEqual([...usual, 'ResourceQuota margay'].sort());
    expect(inNamespace('team-b')).toEqual(usual);
  });

  it('are made under Pod Security restricted and kept, unless they exist', () => {
    expect(namesOf(objects, 'Namespace')).toEqual(['margay-workspaces', 'team-a']);
    for (const { metadata } of ofKind(objects, 'Namespace')) {
      expect(metadata.labels['pod-security.kubernetes.io/enforce']).toBe('restricted');
      expect(metadata.annotations).toEqual({ 'helm.sh/resource-policy': 'keep' });
    }
  });

  it('are emptied of sandboxes after an uninstall', () => {
    const { containers } = find(objects, 'Job', 'margay-release-sandboxes').spec.template.spec;
    expect(containers.map(({ args }: { args: string[] }) => args[2])).toEqual(['margay-workspaces', 'team-a', 'team-b']); // prettier-ignore
  });
});

describe('the hook that ends sandboxes', () => {
  const hooks = () => render().filter(({ metadata }) => metadata.annotations?.['helm.sh/hook'] === 'post-delete');

  it('comes after an uninstall, with a right to end pods and no other', () => {
    expect(
      hooks()
        .map(({ kind }) => kind)
        .sort(),
    ).toEqual(['Job', 'Role', 'RoleBinding', 'ServiceAccount']);
    const role = find(hooks(), 'Role', 'margay-release-sandboxes');
    expect(role.rules).toEqual([{ apiGroups: [''], resources: ['pods'], verbs: ['list', 'deletecollection'] }]);
    expect(role.metadata.namespace).toBe('margay-workspaces');
  });

  it('ends those of this installation alone', () => {
    const [container] = find(hooks(), 'Job', 'margay-release-sandboxes').spec.template.spec.containers;
    expect(container.args).toEqual([
      'release-sandboxes',
      '--namespace',
      'margay-workspaces',
      '--install',
      'agents.margay',
    ]);
    expect(JSON.stringify(find(render(), 'Deployment', 'margay-tool-executor'))).toContain('"value":"agents.margay"');
  });
});

describe('backups', () => {
  const objects = render(readChartYaml('ci/backup.yaml') as object);
  const argsOf = (name: string) =>
    find(objects, 'CronJob', name).spec.jobTemplate.spec.template.spec.containers[0].args;

  it('are made and checked on their days, never two at a time', () => {
    expect(argsOf('margay-backup')).toEqual(['backup', '--to', '/margay/backup', '--keep', '7']);
    expect(argsOf('margay-backup-check')).toEqual(['backup', '--check', '/margay/backup']);
    expect(find(objects, 'CronJob', 'margay-backup').spec).toMatchObject({
      schedule: '0 2 * * *',
      concurrencyPolicy: 'Forbid',
    });
  });

  it('lie on a volume of your own, which no uninstall takes away', () => {
    expect(ofKind(objects, 'PersistentVolumeClaim')).toEqual([]);
    for (const { spec } of ofKind(objects, 'CronJob')) expect(JSON.stringify(spec)).toContain('"claimName":"backups"');
  });

  it('reach the store and nothing else', () => {
    const rules = find(objects, 'NetworkPolicy', 'margay-backup').spec.egress;
    expect(rules.flatMap(({ ports }: { ports: { port: number }[] }) => ports.map(({ port }) => port))).toEqual([
      53, 53, 27017,
    ]);
    expect(JSON.stringify(find(objects, 'NetworkPolicy', 'margay-mongodb').spec.ingress)).toContain('"backup"');
  });

  it('are not made unless asked for', () => {
    expect(ofKind(render(), 'CronJob')).toEqual([]);
  });
});

describe('the pod of helm test', () => {
  it('asks the Service as a client, with the first key', () => {
    const pod = find(render(), 'Pod', 'margay-check');
    expect(pod.metadata.annotations).toMatchObject({ 'helm.sh/hook': 'test' });
    expect(pod.spec.containers[0].args).toEqual(['check', '--url', 'http://margay-gateway']);
    expect(pod.spec.volumes).toContainEqual({ name: 'first-key', secret: { secretName: 'margay-first-key' } });
  });

  it('looks at health alone where there is no first key', () => {
    const pod = find(render({ ...EVALUATION, secrets: { mode: 'existing', existingSecret: 'k', kek: { existingSecret: 'own' } } }), 'Pod', 'margay-check'); // prettier-ignore
    expect(JSON.stringify(pod)).not.toContain('KEY_FILE');
  });
});

describe('the public way in', () => {
  const production = () => render(readChartYaml('ci/production.yaml') as object);

  it('keeps event streams open and unbuffered, and query strings out of logs', () => {
    const { metadata } = find(production(), 'Ingress', 'margay-gateway');
    expect(metadata.annotations).toMatchObject({
      'nginx.ingress.kubernetes.io/proxy-read-timeout': '3600',
      'nginx.ingress.kubernetes.io/proxy-send-timeout': '3600',
      'nginx.ingress.kubernetes.io/proxy-buffering': 'off',
      'nginx.ingress.kubernetes.io/enable-access-log': 'false',
    });
  });

  it('has a certificate', () => {
    const { spec } = find(production(), 'Ingress', 'margay-gateway');
    expect(spec.tls).toEqual([{ hosts: ['margay.example.com'], secretName: 'margay-tls' }]);
    expect(spec.rules[0].http.paths[0].backend.service).toEqual({ name: 'margay-gateway', port: { name: 'http' } });
  });

  it('takes annotations of your own, over ours', () => {
    const gateway = { host: 'localhost', ingress: { enabled: true, annotations: { 'nginx.ingress.kubernetes.io/proxy-body-size': '9m' } } }; // prettier-ignore
    const { metadata } = find(render({ ...EVALUATION, gateway, networkPolicy: { ingressFrom: PEER } }), 'Ingress', 'margay-gateway'); // prettier-ignore
    expect(metadata.annotations).toMatchObject({ 'nginx.ingress.kubernetes.io/proxy-body-size': '9m', 'nginx.ingress.kubernetes.io/proxy-buffering': 'off' }); // prettier-ignore
  });

  it('sets nothing for other controllers', () => {
    const { metadata, spec } = find(
      render(readChartYaml('ci/ingress-other.yaml') as object),
      'Ingress',
      'margay-gateway',
    );
    expect(metadata.annotations).toEqual({ 'example.com/time-out': '1h' });
    expect(spec).not.toHaveProperty('ingressClassName');
  });

  it('may be a route, whose streams last an hour', () => {
    const { spec } = find(render(readChartYaml('ci/gateway-api.yaml') as object), 'HTTPRoute', 'margay-gateway');
    expect(spec.rules[0].timeouts).toEqual({ request: '3600s', backendRequest: '3600s' });
    expect(spec.parentRefs).toEqual([{ name: 'public', namespace: 'gateways', sectionName: 'https' }]);
  });

  it('is closed by default', () => {
    expect([...ofKind(render(), 'Ingress'), ...ofKind(render(), 'HTTPRoute')]).toEqual([]);
    for (const { spec } of ofKind(render(), 'Service')) expect(spec.type ?? 'ClusterIP').toBe('ClusterIP');
  });

  it('leads to control in mode combined', () => {
    const { spec } = find(render({ ...EVALUATION, mode: 'combined' }), 'Service', 'margay-gateway');
    expect(spec.selector['app.kubernetes.io/component']).toBe('control');
  });
});

describe('bundled servers', () => {
  it('are there only when asked for', () => {
    const objects = render(readChartYaml('ci/production.yaml') as object);
    expect(ofKind(objects, 'StatefulSet')).toEqual([]);
    expect(JSON.stringify(ofKind(objects, 'Deployment'))).not.toContain('prepare-store');
  });

  it('a MongoDB is a replica set of one, initiated before session starts', () => {
    const objects = render();
    expect(find(objects, 'StatefulSet', 'margay-mongodb').spec.template.spec.containers[0].args).toEqual(['mongod', '--bind_ip_all', '--replSet', 'margay', '--dbpath', '/data/db']); // prettier-ignore
    const [prepare] = find(objects, 'Deployment', 'margay-session').spec.template.spec.initContainers;
    expect(prepare.args).toEqual(['prepare-store', '--initiate', 'margay']);
    expect(JSON.stringify(prepare.env)).toContain('mongodb://margay-mongodb:27017/?directConnection=true');
  });

  it('a stand-in is started as its image says and only waited for', () => {
    const objects = render(readChartYaml('ci/stand-ins.yaml') as object);
    const store = find(objects, 'StatefulSet', 'margay-mongodb').spec;
    expect(store.template.spec.containers[0]).not.toHaveProperty('args');
    expect(store).not.toHaveProperty('volumeClaimTemplates');
    expect(find(objects, 'Deployment', 'margay-session').spec.template.spec.initContainers[0].args).toEqual(['prepare-store']); // prettier-ignore
  });

  it('MongoDB keeps its data on a volume of the size and class asked for', () => {
    const { spec } = find(render(readChartYaml('ci/first-key.yaml') as object), 'StatefulSet', 'agents-mongodb');
    expect(spec.volumeClaimTemplates[0].spec).toMatchObject({ storageClassName: 'fast', resources: { requests: { storage: '20Gi' } } }); // prettier-ignore
  });

  it('NATS takes nobody without the password that the hook made', () => {
    const objects = render();
    expect(find(objects, 'ConfigMap', 'margay-nats').data['nats.conf']).toContain('authorization { user: margay, password: $NATS_PASSWORD }'); // prettier-ignore
    const { env } = find(objects, 'StatefulSet', 'margay-nats').spec.template.spec.containers[0];
    expect(env[0].valueFrom.secretKeyRef).toEqual({ name: 'margay-nats', key: 'password' });
  });

  it('are not restarted by a newer chart alone', () => {
    for (const { spec } of ofKind(render(), 'StatefulSet')) expect(spec.template.metadata.labels).toEqual(spec.selector.matchLabels); // prettier-ignore
  });
});

describe('the namespace of the workspaces', () => {
  it('is under Pod Security restricted and stays after an uninstall', () => {
    const { metadata } = find(render(), 'Namespace', 'margay-workspaces');
    expect(metadata.labels).toMatchObject({ 'pod-security.kubernetes.io/enforce': 'restricted' });
    expect(metadata.annotations).toEqual({ 'helm.sh/resource-policy': 'keep' });
  });

  it('may be your own, with limits', () => {
    const objects = render(readChartYaml('ci/own-workspaces.yaml') as object);
    expect(ofKind(objects, 'Namespace')).toEqual([]);
    expect(find(objects, 'ResourceQuota', 'margay').spec.hard).toEqual({ pods: 50, 'requests.storage': '500Gi' });
    for (const { metadata } of [
      find(objects, 'Role', 'margay-tool-executor'),
      find(objects, 'NetworkPolicy', 'margay-sandbox'),
    ])
      expect(metadata.namespace).toBe('team-sandboxes');
  });
});

describe('observability', () => {
  const used = (values: object, apis: string[] = []) => render(values, { apis }).filter(({ apiVersion }) => apiVersion === MONITORING); // prettier-ignore

  it('goes by what the cluster has, unless told', () => {
    expect(used(EVALUATION)).toEqual([]);
    expect(used(EVALUATION, [MONITORING])).toHaveLength(9);
    expect(used({ ...EVALUATION, observability: { serviceMonitor: 'never', rules: 'never' } }, [MONITORING])).toEqual(
      [],
    );
    expect(used({ ...EVALUATION, observability: { rules: 'always' } })).toHaveLength(1);
  });

  it('finds every component by a Service with a management port', () => {
    const objects = render(EVALUATION, { apis: [MONITORING] });
    const monitors = ofKind(objects, 'ServiceMonitor');
    expect(monitors).toHaveLength(8);
    for (const { spec } of monitors) {
      const wanted = Object.entries(spec.selector.matchLabels);
      const found = ofKind(objects, 'Service').filter(({ metadata }) => wanted.every(([key, value]) => metadata.labels[key] === value)); // prettier-ignore
      expect(found).toHaveLength(1);
      expect(found[0]?.spec.ports).toContainEqual(expect.objectContaining({ name: 'management', port: 9464 }));
    }
  });

  it('labels what Prometheus selects, and dashboards what Grafana does', () => {
    const objects = render(readChartYaml('ci/production.yaml') as object);
    for (const { metadata } of objects.filter(({ apiVersion }) => apiVersion === MONITORING)) expect(metadata.labels.release).toBe('prometheus'); // prettier-ignore
    const boards = ofKind(objects, 'ConfigMap').filter(({ metadata }) => metadata.labels.grafana_dashboard === '1');
    expect(boards).toHaveLength(4);
    for (const { data } of boards) for (const text of Object.values(data)) expect(JSON.parse(text as string)).toHaveProperty('panels'); // prettier-ignore
  });
});

describe('notes', () => {
  it('tell where the API is, how to get the first key and what is for evaluation only', () => {
    const text = notes();
    expect(text).toContain('kubectl -n agents port-forward service/margay-gateway 8080:80');
    expect(text).toContain("kubectl -n agents get secret margay-first-key -o 'jsonpath={.data.key}'");
    expect(text).toContain('For evaluation only');
    expect(text).toContain('Keep a copy of the secret margay-keys');
    expect(text).toContain('No model yet');
  });

  it('name the public address, and leave out what does not apply', () => {
    const text = notes(readChartYaml('ci/production.yaml') as object);
    expect(text).toContain('https://margay.example.com');
    for (const words of ['evaluation', 'No model yet', 'port-forward', 'Runners may reach']) expect(text).not.toContain(words); // prettier-ignore
  });

  it('warn of open networks', () => {
    expect(notes(readChartYaml('ci/no-network-policy.yaml') as object)).toContain('Warning: without network policies');
  });

  it('say what is still to be set, and what to do after a restore', () => {
    expect(notes()).toContain('It holds for 24 hours');
    expect(notes({ ...EVALUATION, firstKey: { ttlSeconds: 0 } })).not.toContain('It holds');
    const tools = { ...EVALUATION, toolExecutor: { httpToolsSecret: 'tools' } };
    expect(notes(tools)).toContain('Tools of tools go out by the egress proxy');
    const direct = { ...EVALUATION, toolExecutor: { httpToolsSecret: 'tools', httpToolsDirect: true } };
    expect(notes(direct)).toContain('Tools of tools reach nothing unless networkPolicy.httpToolsTo names');
    expect(notes()).toContain('name them in egress.clusterCidrs');
    const ofClass = (workspace: string) => notes({ ...EVALUATION, sandbox: { classes: { default: { storage: 'snapshot', workspace } } } }); // prettier-ignore
    expect(ofClass('2Gi')).toContain('Files of the class default outlive its pods only while');
    expect(ofClass('64Mi')).not.toContain('outlive');
    const restoring = notes(readChartYaml('ci/restore.yaml') as object);
    expect(restoring).toContain('When the job margay-restore-1 is done its log names the database');
  });
});

describe('extra objects', () => {
  it('are templates', () => {
    expect(find(render(readChartYaml('ci/scheduling.yaml') as object), 'ConfigMap', 'margay-note').metadata.namespace).toBe('agents'); // prettier-ignore
  });
});

describe('scheduling', () => {
  it('is that of all pods, and what a component says differently', () => {
    const objects = render(readChartYaml('ci/scheduling.yaml') as object);
    const podOf = (name: string) => find(objects, 'Deployment', name).spec.template;
    expect(podOf('margay-session').spec).toMatchObject({ nodeSelector: { 'kubernetes.io/os': 'linux' }, tolerations: [{ key: 'dedicated' }] }); // prettier-ignore
    expect(podOf('margay-agent-runner').spec).toMatchObject({ nodeSelector: { 'kubernetes.io/os': 'linux', 'kubernetes.io/arch': 'amd64' }, priorityClassName: 'high' }); // prettier-ignore
    expect(podOf('margay-session').metadata).toMatchObject({ labels: { team: 'agents' }, annotations: { 'example.com/owner': 'agents' } }); // prettier-ignore
  });
});

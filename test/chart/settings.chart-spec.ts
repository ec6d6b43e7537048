import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parse } from 'yaml';
import type { ZodObject } from 'zod';
import {
  environmentOf,
  EVALUATION,
  EXTERNAL,
  find,
  ofKind,
  readChartYaml,
  render,
  type KubernetesObject,
} from './render';

/** What a service reads from its environment: its own code says it. */
const configOf = <T extends object>(service: string) => jest.requireActual<T>(`../../services/${service}/src/config`);
const { readConfig: readGatewayConfig } = configOf<{ readConfig: (environment: object) => object }>('gateway');
const { ProcessConfig, GateConfig } = configOf<{ ProcessConfig: ZodObject; GateConfig: ZodObject }>('margay');
const { EgressSettings } = jest.requireActual<{ EgressSettings: ZodObject }>('../../services/egress/src/policy/egress-policy'); // prettier-ignore
interface Templates {
  find(name: string): object | undefined;
}
const { WorkspaceTemplates } = jest.requireActual<{ WorkspaceTemplates: { read(file: string): Templates } }>('../../services/tool-executor/src/content/templates'); // prettier-ignore
const SCHEMAS: Record<string, ZodObject> = {
  session: configOf<{ SessionConfig: ZodObject }>('session').SessionConfig,
  'agent-runner': configOf<{ AgentRunnerConfig: ZodObject }>('agent-runner').AgentRunnerConfig,
  'tool-executor': configOf<{ ToolExecutorConfig: ZodObject }>('tool-executor').ToolExecutorConfig,
  'mcp-pool': configOf<{ McpPoolConfig: ZodObject }>('mcp-pool').McpPoolConfig,
  'ide-manager': configOf<{ IdeManagerConfig: ZodObject }>('ide-manager').IdeManagerConfig,
  channel: configOf<{ ChannelConfig: ZodObject }>('channel').ChannelConfig,
  egress: configOf<{ EgressConfig: ZodObject }>('egress').EgressConfig,
};
/** Read by Node, by OpenTelemetry, or only by Kubernetes itself. */
const OTHERS = /^(HOME|NODE_OPTIONS|NODE_EXTRA_CA_CERTS|OTEL_\w+|NATS_PASSWORD)$/;
/** The gateway's schema is not exported: its names are. */
const GATEWAY =
  /^MARGAY_(GATEWAY_LISTEN|SESSION_URL|TOOL_EXECUTOR_URL|NATS_URL|KEYS_DIR|CORS_ORIGIN|MAX_CONCURRENT_STREAMS|RATE_LIMIT_PER_SECOND|RATE_LIMIT_BURST|STREAM_DRAIN_SECONDS)$/;

const servicesOf = ({ spec }: KubernetesObject): string[] => spec.template.spec.containers[0].args[1].split(',');
const deploymentsOf = (values: object) => ofKind(render(values), 'Deployment');
const environmentIn = (values: object, name: string) => environmentOf(find(render(values), 'Deployment', name));

/** The environment as a process sees it: what comes from secrets is some text. */
const asSeen = (deployment: KubernetesObject) =>
  Object.fromEntries(
    Object.entries(environmentOf(deployment)).map(([name, value]) => [
      name,
      typeof value === 'string' ? value : 'from-a-secret',
    ]),
  );

describe.each([
  'evaluation',
  'combined',
  'production',
  'pools',
  'first-key',
  'own-workspaces',
  'egress',
  'tenants',
  'blobs',
])('the environment of %s', (set) => {
  const deployments = deploymentsOf(readChartYaml(`ci/${set}.yaml`) as object);

  it('is one that every service starts with', () => {
    for (const deployment of deployments) {
      const environment = asSeen(deployment);
      expect(ProcessConfig.safeParse(environment).error).toBeUndefined();
      for (const service of servicesOf(deployment)) {
        if (service === 'gateway') expect(() => readGatewayConfig(environment)).not.toThrow();
        else {
          const { error } = SCHEMAS[service]?.safeParse(environment) ?? {};
          expect([service, error?.issues]).toEqual([service, undefined]);
        }
      }
    }
  });

  it('holds no variable that nobody reads', () => {
    for (const deployment of deployments) {
      const known = new Set([...Object.keys(ProcessConfig.shape), ...Object.keys(GateConfig.shape)]);
      for (const service of servicesOf(deployment))
        for (const name of Object.keys(SCHEMAS[service]?.shape ?? {})) known.add(name);
      const isGateway = servicesOf(deployment).includes('gateway');
      const unread = Object.keys(environmentOf(deployment)).filter((name) => {
        const plain = name.replace(/_FILE$/, '');
        return !known.has(plain) && !known.has(name) && !OTHERS.test(name) && !(isGateway && GATEWAY.test(name));
      });
      expect([servicesOf(deployment), unread]).toEqual([servicesOf(deployment), []]);
    }
  });

  it('holds no secret in the clear', () => {
    for (const deployment of deployments)
      for (const [name, value] of Object.entries(environmentOf(deployment)))
        if (/PASSWORD|API_KEY|TOKEN/.test(name) && typeof value === 'string') expect(value).toMatch(/^\/margay\//);
  });
});

describe('settings reach those they are for', () => {
  it('that there are several tenants, to tool-executor', () => {
    const values = { ...EVALUATION, tenancy: { multiTenant: true } };
    expect(environmentIn(values, 'margay-tool-executor')).toMatchObject({ MARGAY_MULTI_TENANT: 'true' });
    expect(environmentIn(EVALUATION, 'margay-tool-executor')).not.toHaveProperty('MARGAY_MULTI_TENANT');
  });

  it('namespaces of tenants, to tool-executor', () => {
    const extraNamespaces = [{ name: 'team-a', tenants: ['acme', 'anvil'] }, { name: 'team-b' }];
    const { MARGAY_WORKSPACES_EXTRA_NAMESPACES: text } = environmentIn({ ...EVALUATION, workspaces: { extraNamespaces } }, 'margay-tool-executor'); // prettier-ignore
    expect(JSON.parse(String(text))).toEqual({ 'team-a': ['acme', 'anvil'], 'team-b': [] });
    expect(environmentIn(EVALUATION, 'margay-tool-executor')).not.toHaveProperty('MARGAY_WORKSPACES_EXTRA_NAMESPACES');
  });

  it('limits of the gateway', () => {
    const gateway = { maxStreams: 500, rateLimit: { perSecond: 5, burst: 6 }, streamDrainSeconds: 3, corsOrigins: ['https://a.example', 'https://b.example'] }; // prettier-ignore
    const environment = environmentIn({ ...EVALUATION, gateway }, 'margay-gateway');
    expect(environment).toMatchObject({
      MARGAY_MAX_CONCURRENT_STREAMS: '500',
      MARGAY_RATE_LIMIT_PER_SECOND: '5',
      MARGAY_RATE_LIMIT_BURST: '6',
      MARGAY_STREAM_DRAIN_SECONDS: '3',
      MARGAY_CORS_ORIGIN: 'https://a.example,https://b.example',
    });
  });

  it('large numbers, in digits', () => {
    const gateway = { maxStreams: 12_000_000 };
    const environment = environmentIn({ ...EVALUATION, gateway }, 'margay-gateway');
    expect(environment.MARGAY_MAX_CONCURRENT_STREAMS).toBe('12000000');
  });

  it('models, to session and runner alone', () => {
    const models = { default: 'm', baseUrl: 'https://models.example.com/v1', existingSecret: 'k' };
    for (const deployment of deploymentsOf({ ...EVALUATION, models })) {
      const environment = environmentOf(deployment);
      const [service] = servicesOf(deployment);
      const isConcerned = service === 'session' || service === 'agent-runner';
      expect([service, 'OPENAI_API_KEY' in environment, 'OPENAI_BASE_URL' in environment]).toEqual([service, isConcerned, isConcerned]); // prettier-ignore
      expect(environment.MARGAY_MODEL).toBe(service === 'session' ? 'm' : undefined);
    }
  });

  it('the store to session and tool-executor, the broker to them, the gateway and the proxy', () => {
    for (const deployment of deploymentsOf(EXTERNAL)) {
      const environment = environmentOf(deployment);
      const [service = ''] = servicesOf(deployment);
      expect([service, 'MARGAY_MONGODB_URL' in environment]).toEqual([service, ['session', 'tool-executor'].includes(service)]); // prettier-ignore
      const hasNats = ['session', 'gateway', 'tool-executor', 'egress'].includes(service);
      expect([service, 'MARGAY_NATS_URL' in environment]).toEqual([service, hasNats]);
    }
  });

  it('the key of secrets to session alone, from your own secret where you name one', () => {
    const kekOf = (values: object) =>
      deploymentsOf(values).flatMap(({ spec }) =>
        (spec.template.spec.volumes as { name: string; secret?: object }[]).filter(({ name }) => name === 'kek'),
      );
    const items = [{ key: 'kek.json', path: 'kek.json' }];
    expect(kekOf(EVALUATION)).toEqual([{ name: 'kek', secret: { secretName: 'margay-kek', items } }]);
    expect(kekOf({ ...EVALUATION, secrets: { kek: { existingSecret: 'own' } } })).toEqual([
      { name: 'kek', secret: { secretName: 'own', items } },
    ]);
    const reading = deploymentsOf(EVALUATION).filter((deployment) => 'MARGAY_KEK_FILE' in environmentOf(deployment));
    expect(reading.flatMap(servicesOf)).toEqual(['session']);
  });

  it('the authority of the proxy to egress whole, its certificate to tool-executor, and nothing where there is none', () => {
    const filesOf = (values: object) =>
      deploymentsOf(values).flatMap((deployment) => {
        const volumes = deployment.spec.template.spec.volumes as { name: string; secret?: { secretName: string; items: { key: string }[] } }[]; // prettier-ignore
        const secret = volumes.find(({ name }) => name === 'egress-ca')?.secret;
        return secret ? [[servicesOf(deployment)[0], secret.secretName, ...secret.items.map(({ key }) => key)]] : [];
      });
    const both = (name: string) => [
      ['egress', name, 'ca.pem', 'ca.key.pem'],
      ['tool-executor', name, 'ca.pem'],
    ];
    expect(filesOf(EVALUATION).sort()).toEqual(both('margay-egress-ca'));
    expect(filesOf({ ...EVALUATION, secrets: { existingEgressAuthority: 'own' } }).sort()).toEqual(both('own'));
    const existing = { mode: 'existing', existingSecret: 'k', kek: { existingSecret: 'own' } };
    expect(filesOf({ ...EVALUATION, secrets: existing })).toEqual([]);
    const told = deploymentsOf(EVALUATION).map(environmentOf);
    expect(told.filter((environment) => 'MARGAY_EGRESS_CA_DIR' in environment)).toHaveLength(1);
    expect(told.filter((environment) => 'MARGAY_EGRESS_CA_FILE' in environment)).toHaveLength(1);
  });

  it('the first key to session alone, or nobody where there is none', () => {
    const mounting = (values: object) =>
      deploymentsOf(values).filter(({ spec }) => JSON.stringify(spec.template).includes('/margay/first-key')).flatMap(servicesOf); // prettier-ignore
    expect(mounting(EVALUATION)).toEqual(['session']);
    expect(
      mounting({ ...EVALUATION, secrets: { mode: 'existing', existingSecret: 'k', kek: { existingSecret: 'own' } } }),
    ).toEqual([]);
  });

  it('pools: slots and names to their runners, new runs to the first', () => {
    const runner = {
      pools: [
        { name: 'large', replicas: 3, slots: 400 },
        { name: 'default', replicas: 1, slots: 50 },
      ],
    };
    const values = { ...EVALUATION, runner };
    expect(environmentIn(values, 'margay-agent-runner-large')).toMatchObject({ MARGAY_POOL: 'large', MARGAY_RUNNER_SLOTS: '400' }); // prettier-ignore
    expect(environmentIn(values, 'margay-agent-runner')).toMatchObject({ MARGAY_POOL: 'default', MARGAY_RUNNER_SLOTS: '50' }); // prettier-ignore
    expect(environmentIn(values, 'margay-session')).toMatchObject({ MARGAY_POOL: 'large', MARGAY_RUNNER_POOLS: '{"default":[]}' }); // prettier-ignore
    expect(find(render(values), 'Deployment', 'margay-agent-runner-large').spec.replicas).toBe(3);
  });

  it('memory of runs driven alone is left beside the heap of the runner', () => {
    const heapOf = (isolated: object) =>
      Number(/size=(\d+)$/.exec(String(environmentIn({ ...EVALUATION, runner: { isolated } }, 'margay-agent-runner').NODE_OPTIONS))?.[1]); // prettier-ignore
    expect(heapOf({ runs: 2, heapMb: 256 })).toBe(768);
    expect(heapOf({ runs: 1, heapMb: 128 })).toBe(1056);
  });

  it('traces, in a share', () => {
    const values = { ...EVALUATION, networkPolicy: { enabled: true, otlpTo: [{ podSelector: {} }] }, observability: { otlp: { endpoint: 'http://c:4318', sampling: 0.5 } } }; // prettier-ignore
    expect(environmentIn(values, 'margay-channel')).toMatchObject({
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c:4318',
      OTEL_TRACES_SAMPLER: 'parentbased_traceidratio',
      OTEL_TRACES_SAMPLER_ARG: '0.5',
    });
    expect(environmentIn(EVALUATION, 'margay-channel')).not.toHaveProperty('OTEL_EXPORTER_OTLP_ENDPOINT');
  });

  it('authorities of one’s own', () => {
    const deployment = find(render({ ...EVALUATION, caSecret: 'house-ca' }), 'Deployment', 'margay-session');
    expect(environmentOf(deployment).NODE_EXTRA_CA_CERTS).toBe('/margay/ca/ca.crt');
    expect(deployment.spec.template.spec.volumes).toContainEqual({ name: 'ca', secret: { secretName: 'house-ca' } });
  });

  it('tools of the operator, to tool-executor', () => {
    const values = { ...EVALUATION, toolExecutor: { httpToolsSecret: 't' } };
    expect(environmentIn(values, 'margay-tool-executor').MARGAY_HTTP_TOOLS_FILE).toBe('/margay/http-tools/tools.json');
    expect(environmentIn(values, 'margay-session')).not.toHaveProperty('MARGAY_HTTP_TOOLS_FILE');
    const egress = find(render(values), 'Service', 'margay-egress');
    const services = egress.spec.ports.find(({ name }: { name: string }) => name === 'services');
    expect(environmentIn(values, 'margay-egress').MARGAY_EGRESS_SERVICES_LISTEN).toBe(`0.0.0.0:${services.port}`);
    const wayOut = 'MARGAY_EGRESS_SERVICES_ADDRESS';
    expect(environmentIn(values, 'margay-tool-executor')[wayOut]).toBe(`margay-egress:${services.port}`);
    const direct = { ...EVALUATION, toolExecutor: { httpToolsSecret: 't', httpToolsDirect: true } };
    for (const other of [EVALUATION, direct])
      expect(environmentIn(other, 'margay-tool-executor')).not.toHaveProperty(wayOut);
  });

  it('sandboxes: their image, limits and classes, to tool-executor', () => {
    const objects = render(readChartYaml('ci/own-workspaces.yaml') as object);
    const executor = find(objects, 'Deployment', 'margay-tool-executor');
    expect(environmentOf(executor)).toMatchObject({
      MARGAY_SANDBOX_DRIVER: 'kubernetes',
      MARGAY_WORKSPACES_NAMESPACE: 'team-sandboxes',
      MARGAY_INSTALL_ID: 'agents.margay',
      MARGAY_SANDBOX_IMAGE: 'images.example.com/margay-sandbox:0.1.0',
      MARGAY_SANDBOX_PULL_SECRETS: 'registry',
      MARGAY_SANDBOX_IDLE_STOP_SECONDS: '300',
      MARGAY_SANDBOX_TENANT_MAX: '5',
      MARGAY_SANDBOX_CLASSES_FILE: '/margay/classes/classes.yaml',
    });
    const { data } = find(objects, 'ConfigMap', 'margay-sandbox-classes');
    expect(parse(data['classes.yaml'])).toMatchObject({ default: { workspace: '20Gi', warm: { min: 1, max: 4 } } });
    expect(environmentIn(EVALUATION, 'margay-tool-executor')).not.toHaveProperty('MARGAY_SANDBOX_CLASSES_FILE');
  });

  it('the secrets of the registry, to sandboxes as to all other pods', () => {
    const environmentWith = (values: object) => environmentIn({ ...EVALUATION, image: { pullSecrets: ['a', 'b'] }, ...values }, 'margay-tool-executor'); // prettier-ignore
    expect(environmentWith({}).MARGAY_SANDBOX_PULL_SECRETS).toBe('a,b');
    expect(environmentWith({ sandbox: { image: { pullSecrets: ['c'] } } }).MARGAY_SANDBOX_PULL_SECRETS).toBe('c');
    expect(environmentIn(EVALUATION, 'margay-tool-executor')).not.toHaveProperty('MARGAY_SANDBOX_PULL_SECRETS');
  });

  it('the end of the first key: after a day, unless told', () => {
    expect(environmentIn(EVALUATION, 'margay-session').MARGAY_BOOTSTRAP_KEY_SECONDS).toBe('86400');
    const lasting = { ...EVALUATION, firstKey: { ttlSeconds: 0 } };
    expect(environmentIn(lasting, 'margay-session').MARGAY_BOOTSTRAP_KEY_SECONDS).toBe('0');
  });

  it('workspaces: what they can begin with, and how long they are kept, to tool-executor', () => {
    const objects = render(readChartYaml('ci/own-workspaces.yaml') as object);
    expect(environmentOf(find(objects, 'Deployment', 'margay-tool-executor'))).toMatchObject({
      MARGAY_WORKSPACE_TEMPLATES_FILE: '/margay/templates/templates.yaml',
      MARGAY_WORKSPACE_MAX_BYTES: '1073741824',
      MARGAY_WORKSPACE_SESSION_DAYS: '7',
      MARGAY_WORKSPACE_SESSION_DAYS_BY_TENANT: '{"acme":90}',
      MARGAY_WORKSPACE_PROJECT_DAYS: '60',
    });
    const { data } = find(objects, 'ConfigMap', 'margay-workspace-templates');
    const file = join(mkdtempSync(join(tmpdir(), 'margay-templates-')), 'templates.yaml');
    writeFileSync(file, data['templates.yaml']);
    const templates = WorkspaceTemplates.read(file);
    expect(templates.find('service')).toMatchObject({ ref: 'main' });
    expect(templates.find('library')).toHaveProperty('blob');
  });

  it('the widest policy that tenants may have, to session as to the proxy', () => {
    expect(environmentIn(EVALUATION, 'margay-session').MARGAY_EGRESS_MAX_MODE).toBe('allowlist');
    const wide = { ...EVALUATION, egress: { maxMode: 'public' } };
    expect(environmentIn(wide, 'margay-session').MARGAY_EGRESS_MAX_MODE).toBe('public');
  });

  it('other classes or templates start another tool-executor, and nothing else', () => {
    const withClass = (workspace: string, name: string) => {
      const values = readChartYaml('ci/own-workspaces.yaml') as {
        sandbox: { classes: { default: { workspace: string } } };
        workspaces: { templates: { name: string }[] };
      };
      values.sandbox.classes.default.workspace = workspace;
      values.workspaces.templates[0]!.name = name;
      return ofKind(render(values), 'Deployment');
    };
    const [one, other] = [withClass('1Gi', 'a'), withClass('2Gi', 'a')];
    const changed = one.filter((deployment, index) => JSON.stringify(deployment) !== JSON.stringify(other[index]));
    expect(changed.map(({ metadata }) => metadata.name)).toEqual(['margay-tool-executor']);
    expect(withClass('1Gi', 'b')).not.toEqual(one);
  });

  it('the proxy: to tool-executor its address, to itself the policies, which it watches', () => {
    const objects = render(readChartYaml('ci/egress.yaml') as object);
    const executor = environmentOf(find(objects, 'Deployment', 'margay-tool-executor'));
    const { spec } = find(objects, 'Service', 'margay-egress');
    expect(executor.MARGAY_EGRESS_ADDRESS).toBe(`margay-egress:${spec.ports[0].port}`);
    expect(spec.clusterIP).toBeUndefined();
    const egress = find(objects, 'Deployment', 'margay-egress');
    expect(environmentOf(egress)).toMatchObject({
      MARGAY_EGRESS_LISTEN: '0.0.0.0:3128',
      MARGAY_EGRESS_POLICY_FILE: '/margay/egress/policy.json',
      MARGAY_TOOL_EXECUTOR_URL: 'margay-tool-executor:9091',
      MARGAY_EGRESS_DRAIN_SECONDS: '60',
    });
    const [{ volumeMounts }] = egress.spec.template.spec.containers;
    // A file that is mounted by itself would never change.
    expect(volumeMounts).toContainEqual({ name: 'egress', mountPath: '/margay/egress', readOnly: true });
    const settings = EgressSettings.parse(JSON.parse(find(objects, 'ConfigMap', 'margay-egress').data['policy.json']));
    expect(settings).toMatchObject({
      maxMode: 'public',
      private: [{ host: 'git.example.com', cidr: '192.0.2.8/32', ports: [443, 8443] }],
      clusterCidrs: ['198.51.100.0/24', '2001:db8:1::/48'],
      policy: { mode: 'allowlist', rules: [{ id: 'packages' }] },
      tenants: { quiet: { mode: 'none' } },
    });
  });

  it('no policy unless one is set, so that nothing is let out', () => {
    const { data } = find(render(), 'ConfigMap', 'margay-egress');
    const settings = EgressSettings.parse(JSON.parse(data['policy.json']));
    expect(settings).toEqual({ maxMode: 'allowlist', private: [], clusterCidrs: [], tenants: {} });
  });

  it('another policy starts no pod anew', () => {
    const deploymentsWith = (maxMode: string) => deploymentsOf({ ...EVALUATION, egress: { maxMode } });
    // Only session is told: it says what tenants may set.
    const others = (maxMode: string) => deploymentsWith(maxMode).filter(({ metadata }) => metadata.name !== 'margay-session'); // prettier-ignore
    expect(others('public')).toEqual(others('none'));
    const withRule = (host: string) => deploymentsOf({ ...EVALUATION, egress: { policy: { rules: [{ id: 'a', hosts: [host] }] } } }); // prettier-ignore
    expect(withRule('a.example.com')).toEqual(withRule('b.example.com'));
  });

  it('further variables come last, so that they win', () => {
    const values = { ...EVALUATION, session: { extraEnv: [{ name: 'MARGAY_LOG_LEVEL', value: 'debug' }] } };
    expect(environmentIn(values, 'margay-session').MARGAY_LOG_LEVEL).toBe('debug');
  });

  it('what is laid over a Deployment keeps the rest', () => {
    const values = {
      ...EVALUATION,
      channel: { merge: { spec: { minReadySeconds: 7 }, metadata: { annotations: { a: 'b' } } } },
    };
    const { spec, metadata } = find(render(values), 'Deployment', 'margay-channel');
    expect([spec.minReadySeconds, spec.replicas, metadata.annotations]).toEqual([7, 1, { a: 'b' }]);
  });
});

describe('images', () => {
  const imageOf = (image: object) => find(render({ ...EVALUATION, image }), 'Deployment', 'margay-session').spec.template.spec.containers[0].image; // prettier-ignore
  const digest = `sha256:${'a'.repeat(64)}`;

  it.each([
    [{}, 'margay:0.1.0'],
    [{ repository: 'images.example.com/m', tag: 'x' }, 'images.example.com/m:x'],
    [{ tag: 'x', digest }, `margay@${digest}`],
  ])('%j', (image, expected) => {
    expect(imageOf(image)).toBe(expected);
  });
});

describe('names', () => {
  const nameIn = (values: object, release?: string) => ofKind(render(values, { ...(release && { release }) }), 'Deployment')[0]?.metadata.name; // prettier-ignore

  it.each([
    [EVALUATION, 'margay', 'margay-gateway'],
    [EVALUATION, 'team', 'team-margay-gateway'],
    [EVALUATION, 'my-margay', 'my-margay-gateway'],
    [{ ...EVALUATION, fullnameOverride: 'agents' }, 'team', 'agents-gateway'],
  ])('of %j as release %s', (values, release, expected) => {
    expect(nameIn(values, release)).toBe(expected);
  });

  it('stay short enough for labels and DNS', () => {
    const objects = render({ ...EVALUATION, runner: { pools: [{ name: 'a'.repeat(20), replicas: 1, slots: 1 }] } }, { release: 'r'.repeat(53) }); // prettier-ignore
    for (const { metadata } of objects) expect(metadata.name.length).toBeLessThanOrEqual(63);
  });
});

import { callersOf, peerName } from '@margay/platform';
import { parse } from 'yaml';
import { environmentOf, EVALUATION, find, notes, ofKind, readChartFile, readChartYaml, refusal, render, type KubernetesObject } from './render'; // prettier-ignore

const CERT_MANAGER = { apis: ['cert-manager.io/v1'] };
const COMPONENTS = ['agent-runner', 'channel', 'egress', 'gateway', 'ide-manager', 'mcp-pool', 'session', 'tool-executor']; // prettier-ignore

interface Volume {
  name: string;
  secret?: { secretName: string };
}
const tlsVolumeOf = ({ spec }: KubernetesObject) =>
  (spec.template.spec.volumes as Volume[]).find(({ name }) => name === 'tls')?.secret?.secretName;
const deployments = (values: object = EVALUATION, options = {}) => ofKind(render(values, options), 'Deployment');
const hookArguments = (values: object = EVALUATION): string[] =>
  ofKind(render(values), 'Job').find(({ metadata }) => metadata.name === 'margay-bootstrap')?.spec.template.spec.containers[0].args; // prettier-ignore
const peersIn = (args: string[]) => args.filter((_, index) => args[index - 1] === '--peer');

describe('certificates of services', () => {
  it('lie in every pod, of each kind its own, and the key of the authority in none', () => {
    const found = deployments();
    for (const deployment of found) {
      expect(environmentOf(deployment).MARGAY_TLS_DIR).toBe('/margay/tls');
      const { name } = deployment.metadata;
      expect(tlsVolumeOf(deployment)).toBe(name.replace('margay-', 'margay-tls-'));
    }
    expect(found.map(({ metadata }) => metadata.name.replace('margay-', '')).sort()).toEqual(COMPONENTS);
    expect(JSON.stringify(found)).not.toContain('margay-tls-ca');
  });

  it('are made by the hook where there is no cert-manager, for exactly the services of each kind of pod', () => {
    expect(peersIn(hookArguments()).sort()).toEqual(COMPONENTS.map((name) => `${name}=${name}`));
    expect(hookArguments()).toEqual(expect.arrayContaining(['--tls', 'margay-tls']));
    const combined = peersIn(hookArguments({ ...EVALUATION, mode: 'combined' }));
    expect(combined).toContain('control=gateway,session,tool-executor,mcp-pool,ide-manager,channel');
    expect(combined).toHaveLength(3);
  });

  it('are one for all pools of runners', () => {
    const values = readChartYaml('ci/pools.yaml') as object;
    expect(peersIn(hookArguments(values)).filter((peer) => peer.startsWith('agent-runner'))).toHaveLength(1);
    const runners = deployments(values).filter(({ metadata }) => metadata.name.includes('agent-runner'));
    expect(runners.length).toBeGreaterThan(1);
    expect(new Set(runners.map(tlsVolumeOf)).size).toBe(1);
  });

  it('are made by cert-manager where the cluster has it, under the names that services look for', () => {
    const objects = render(EVALUATION, CERT_MANAGER);
    const certificates = ofKind(objects, 'Certificate');
    expect(certificates).toHaveLength(COMPONENTS.length + 1);
    for (const name of COMPONENTS) {
      const { spec } = find(objects, 'Certificate', `margay-tls-${name}`);
      expect(spec).toMatchObject({
        secretName: `margay-tls-${name}`,
        dnsNames: [peerName(name)],
        usages: ['digital signature', 'server auth', 'client auth'],
        issuerRef: { kind: 'Issuer', name: 'margay-tls' },
      });
    }
    expect(find(objects, 'Certificate', 'margay-tls-ca').spec).toMatchObject({ isCA: true });
    expect(find(objects, 'Issuer', 'margay-tls').spec).toEqual({ ca: { secretName: 'margay-tls-ca' } });
    expect(JSON.stringify(ofKind(objects, 'Job'))).not.toContain('--tls');
  });

  it('come from an issuer of yours where you name one', () => {
    const objects = render({ ...EVALUATION, tls: { issuer: { name: 'house' } } }, CERT_MANAGER);
    expect(ofKind(objects, 'Issuer')).toEqual([]);
    const certificates = ofKind(objects, 'Certificate');
    expect(certificates).toHaveLength(COMPONENTS.length);
    for (const { spec } of certificates) expect(spec.issuerRef).toEqual({ kind: 'ClusterIssuer', name: 'house' });
  });

  it('are your own where you say so, and nobody makes any', () => {
    const values = { ...EVALUATION, tls: { mode: 'existing', existingSecret: 'house' } };
    expect(deployments(values).map(tlsVolumeOf).sort()).toEqual(COMPONENTS.map((name) => `house-${name}`));
    expect(hookArguments(values)).not.toContain('--tls');
    expect(ofKind(render(values, CERT_MANAGER), 'Certificate')).toEqual([]);
  });

  it.each(['off', false])('are left out with %p, with a warning', (mode) => {
    const values = { ...EVALUATION, tls: { mode } };
    for (const deployment of deployments(values, CERT_MANAGER)) {
      expect(environmentOf(deployment)).not.toHaveProperty('MARGAY_TLS_DIR');
      expect(tlsVolumeOf(deployment)).toBeUndefined();
    }
    expect(hookArguments(values)).not.toContain('--tls');
    const warning = 'Warning: with tls.mode off services speak plaintext';
    expect(notes(values)).toContain(warning);
    expect(notes()).not.toContain(warning);
  });

  it.each([
    [{ mode: 'certManager' }, 'tls.mode: certManager, but the cluster has no cert-manager.io/v1; install cert-manager'],
    [{ mode: 'existing' }, 'tls.existingSecret: missing with tls.mode existing; set it'],
    [{ existingSecret: 'house' }, 'tls.existingSecret: not used with tls.mode auto; set tls.mode to existing'],
    [{ issuer: { name: 'house' } }, 'tls.issuer.name: not used without cert-manager; set tls.mode to certManager'],
  ])('are refused with %j', (tls, words) => {
    expect(refusal({ ...EVALUATION, tls })).toContain(words);
  });
});

describe('who may call whom', () => {
  it('is the same for certificates as for the network', () => {
    const text = readChartFile('templates/_components.tpl');
    const [, table = ''] = /define "margay\.edges" -}}\n([\s\S]*?){{- end -}}/.exec(text) ?? [];
    const edges = parse(table) as Record<string, { calls: string[] }>;
    const services = Object.keys(edges);
    expect(services.toSorted()).toEqual(COMPONENTS);
    for (const service of services) {
      const callers = services.filter((caller) => edges[caller]?.calls.includes(service));
      expect([service, callersOf(service).toSorted()]).toEqual([service, callers.toSorted()]);
    }
  });
});

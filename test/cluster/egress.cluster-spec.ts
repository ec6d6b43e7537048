import { newAuthority } from '@margay/egress';
import { certify, newKeyPair } from '@margay/platform/certificates';
import { egressPod, PROXY_PORT } from './egress-pod';
import { ExecutorPods, GRPC_PORT, TENANT, type ExecutorClient } from './executor-pods';
import { ClusterHarness } from './harness';
import { answering, nodePod, READY_ON_HTTP, service } from './pods';

jest.setTimeout(180_000);

const CLASS = {
  cpu: { request: '50m', limit: '1' },
  memory: { request: '64Mi', limit: '2Gi' },
  workspace: '64Mi',
  scratch: '64Mi',
  storage: 'snapshot',
  egress: 'proxy',
  warm: { min: 0, max: 0 },
};

const HOUR_MS = 3_600_000;
const period = () => ({ notBeforeMs: Date.now() - HOUR_MS, notAfterMs: Date.now() + HOUR_MS });
/** Vouches for the host of these tests, believed by the proxy alone. */
const hosts = { subject: 'hosts', keys: newKeyPair() };
const hostsPem = certify({
  ...hosts,
  publicKey: hosts.keys.publicKey,
  issuer: hosts,
  ...period(),
  use: { kind: 'authority' },
});
const authority = newAuthority(Date.now());

const cluster = new ClusterHarness();
let pods: ExecutorPods;
let client: ExecutorClient;
/** The name of a server that the operator lets sandboxes reach. */
let web: string;

/** Says hello in the clear and, with a certificate of its own, encrypted. */
function webScript(): string {
  const { privateKey, publicKey } = newKeyPair();
  const use = { kind: 'server', names: [web] } as const;
  const cert = certify({ subject: 'web', publicKey, issuer: hosts, ...period(), use });
  const identity = { key: privateKey.export({ type: 'pkcs8', format: 'pem' }), cert };
  return `${answering(`'hello'`)};
    require('node:https').createServer(${JSON.stringify(identity)}, (request, response) => {
      response.end('secret ' + request.method + ' ' + request.url);
    }).listen(8443);`;
}

beforeAll(async () => {
  pods = await ExecutorPods.open(cluster, { default: CLASS });
  web = `web.${pods.home}.svc.cluster.local`;
  await cluster.apply(
    nodePod(cluster, { name: 'web', namespace: pods.home, script: webScript(), container: READY_ON_HTTP }),
    {
      apiVersion: 'v1',
      kind: 'Secret',
      metadata: { name: 'authority', namespace: pods.home },
      stringData: { 'ca.pem': authority.certificatePem, 'ca.key.pem': authority.keyPem },
    },
    service('web', pods.home, [
      { name: 'http', port: 80, targetPort: 8080 },
      { name: 'https', port: 443, targetPort: 8443 },
    ]),
    service('egress', pods.home, [{ port: PROXY_PORT }]),
    service('one', pods.home, [{ port: GRPC_PORT }]),
  );
  const { spec } = await cluster.get<{ spec: { clusterIP: string } }>(pods.home, 'service', 'web');
  const policy = {
    private: [{ host: web, cidr: `${spec.clusterIP}/32`, ports: [80, 443] }],
    policy: {
      rules: [
        { id: 'web', hosts: [web, `one.${pods.home}.svc.cluster.local`], ports: [80, GRPC_PORT] },
        { id: 'team', hosts: [web], intercept: true, methods: ['GET'], paths: ['/team/**'] },
      ],
    },
  };
  const environment = { MARGAY_EGRESS_CA_DIR: '/margay/authority', MARGAY_EGRESS_TRUST: hostsPem };
  await cluster.apply(...egressPod(cluster, pods, { policy, environment, authoritySecret: 'authority' }));
  await cluster.kubectl([
    ...['-n', pods.home, 'patch', 'secret', 'keys', '--type', 'merge'],
    ...['-p', JSON.stringify({ stringData: { 'ca.pem': authority.certificatePem } })],
  ]);
  ({ client } = await pods.start('one', {
    MARGAY_EGRESS_ADDRESS: `egress:${PROXY_PORT}`,
    MARGAY_EGRESS_CA_FILE: '/margay/keys/ca.pem',
  }));
  for (const name of ['web', 'egress']) await cluster.waitFor(pods.home, `pod/${name}`, 'condition=Ready');
}, 300_000);
afterAll(async () => {
  await pods?.close();
  await cluster.stop();
});

const status = (url: string) => `curl -s -m 10 -o /dev/null -w '%{http_code} %header{x-margay-egress}\\n' ${url}`;

describe('a sandbox behind the proxy', () => {
  it('reaches what the policy allows, under its own name, and nothing else', async () => {
    const commands = [
      `curl -sS -m 10 http://${web}/`,
      'echo',
      status('http://exfil.example/'),
      status('http://169.254.169.254/'),
      status(`http://one.${pods.home}.svc.cluster.local:${GRPC_PORT}/`),
    ];
    const { output } = await pods.shell(client, 'out', commands.join('; '));
    expect(output.trim().split('\n')).toEqual([
      'hello',
      ...['403 egress_denied', '403 egress_denied', '502 egress_address'],
    ]);
    const log = await cluster.kubectl(['-n', pods.home, 'logs', 'egress']);
    const lines = log.split('\n').filter((line) => line.includes('"exfil.example"'));
    expect(lines.map((line) => (JSON.parse(line) as { egress: object }).egress)).toEqual([
      expect.objectContaining({ tenantId: TENANT, sessionId: 'out', decision: 'denied' }),
    ]);
  });

  it('has its encrypted requests read, by an authority that its programs believe', async () => {
    const node = `fetch('https://${web}/team/node').then((answer) => answer.text()).then(console.log, (error) => console.log(String(error.cause)))`;
    const python = `import urllib.request; print(urllib.request.urlopen('https://${web}/team/python').read().decode())`;
    const commands = [
      `curl -sS -m 10 https://${web}/team/curl`,
      'echo',
      `node -e "${node}"`,
      `python3 -c "${python}"`,
      status(`https://${web}/other`),
      status(`-X DELETE https://${web}/team/curl`),
      `curl -sS -m 10 --cacert /etc/ssl/certs/ca-certificates.crt https://${web}/team/x >/dev/null 2>&1 || echo 'not believed'`,
      `git ls-remote https://${web}/team/none 2>&1 | grep -c -i certificate`,
    ];
    const { output } = await pods.shell(client, 'out', commands.join('; '));
    expect(output.trim().split('\n')).toEqual([
      ...['secret GET /team/curl', 'secret GET /team/node', 'secret GET /team/python'],
      ...['403 egress_denied', '403 egress_denied', 'not believed', '0'],
    ]);
  });

  it('cannot lend its name to another pod', async () => {
    const { output } = await pods.shell(client, 'out', 'echo $HTTP_PROXY; grep -w egress /etc/hosts');
    const [proxy = '', address = ''] = output.trim().split('\n');
    const ip = address.split(/\s+/)[0] ?? '';
    const { username, password } = new URL(proxy);
    const user = Buffer.from(`${username}:${password}`).toString('base64');
    const script = `const request = require('node:http').request({ host: '${ip}', port: ${PROXY_PORT}, path: 'http://${web}/',
      headers: { 'Proxy-Authorization': 'Basic ${user}' } }, (response) => console.log(response.statusCode));
      request.end();`;
    expect((await cluster.evaluate(pods.home, 'web', script)).trim()).toBe('407');
    expect((await pods.shell(client, 'out', status(`http://${web}/`))).output.trim()).toBe('200');
  });
});

import { generateKeyPairSync } from 'node:crypto';
import { ClusterHarness, type Manifest } from './harness';
import { CONTAINER_SECURITY, nodePod, POD_SECURITY } from './pods';

jest.setTimeout(180_000);

/** How the image starts its daemon. */
const INIT = ['/usr/bin/tini', '--'];
/** gRPC's status code. */
const UNAUTHENTICATED = 16;

describe('our images in pods under Pod Security restricted', () => {
  const cluster = new ClusterHarness();
  let namespace: string;

  beforeAll(async () => {
    namespace = await cluster.namespace('images');
  });
  afterAll(() => cluster.stop());

  const sandboxPod = (name: string, container: object): Manifest => ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace },
    spec: {
      automountServiceAccountToken: false,
      restartPolicy: 'Never',
      terminationGracePeriodSeconds: 1,
      securityContext: POD_SECURITY,
      containers: [
        {
          name: 'main',
          image: cluster.image('margay-sandbox'),
          imagePullPolicy: cluster.imagePullPolicy,
          securityContext: CONTAINER_SECURITY,
          volumeMounts: ['workspace', 'tmp'].map((volume) => ({ name: volume, mountPath: `/${volume}` })),
          ...container,
        },
      ],
      volumes: ['workspace', 'tmp'].map((volume) => ({ name: volume, emptyDir: {} })),
    },
  });
  const logs = (pod: string) => cluster.kubectl(['-n', namespace, 'logs', pod]);

  it('starts the services of the margay image, which says its version', async () => {
    const pod = nodePod(cluster, { name: 'version', namespace, script: '', spec: { restartPolicy: 'Never' } });
    const [main] = (pod.spec as { containers: { command?: unknown }[] }).containers;
    delete main?.command;
    await cluster.apply({ ...pod, spec: { ...(pod.spec as object), containers: [{ ...main, args: ['--version'] }] } });
    await cluster.waitFor(namespace, 'pod/version', 'jsonpath={.status.phase}=Succeeded');
    expect(await logs('version')).toBe(`${process.env.MARGAY_TEST_VERSION}\n`);
  });

  it('has neither shell nor package manager beside the services', async () => {
    const script = `const fs = require('node:fs');
      console.log(JSON.stringify([...fs.readdirSync('/usr/bin'), ...fs.readdirSync('/usr/sbin')]), process.getuid())`;
    await cluster.apply(nodePod(cluster, { name: 'look', namespace, script, spec: { restartPolicy: 'Never' } }));
    await cluster.waitFor(namespace, 'pod/look', 'jsonpath={.status.phase}=Succeeded');
    expect(await logs('look')).toBe('["node"] 1000\n');
  });

  it('starts sandboxd, which finds all it needs', async () => {
    await cluster.apply(sandboxPod('probe', { args: ['--probe'] }));
    await cluster.waitFor(namespace, 'pod/probe', 'jsonpath={.status.phase}=Succeeded');
    expect(await logs('probe')).toBe('ready\n');
  });

  it('starts sandboxd as a pod that answers on its port, and refuses who shows no grant', async () => {
    const value = (name: string, text: string) => ({ name, value: text });
    const trust = generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'pem' });
    await cluster.apply(
      sandboxPod('sandbox', {
        env: [
          { name: 'MARGAY_SANDBOX_ID', valueFrom: { fieldRef: { fieldPath: 'metadata.uid' } } },
          value('MARGAY_SANDBOX_LISTEN', '0.0.0.0:7777'),
          value('MARGAY_SANDBOX_TRUST', trust.toString()),
          value('MARGAY_SANDBOX_STATE_DIR', '/tmp/state'),
          value('MARGAY_SANDBOX_ROOT', '/workspace'),
          value('MARGAY_SANDBOX_SPILL_DIR', '/tmp/results'),
          value('MARGAY_SANDBOX_ISOLATION', 'pod'),
          value('MARGAY_SANDBOX_PROCESSES', '0'),
        ],
        readinessProbe: { tcpSocket: { port: 7777 }, periodSeconds: 1 },
      }),
    );
    await cluster.waitFor(namespace, 'pod/sandbox', 'condition=Ready');
    const address = await cluster.kubectl(['-n', namespace, 'get', 'pod', 'sandbox', '-o=jsonpath={.status.podIP}']);
    const script = `const call = require('node:http2')
        .connect('https://${address}:7777', { rejectUnauthorized: false })
        .request({ ':method': 'POST', ':path': '/margay.sandbox.v1.Sandboxd/Hello',
          'content-type': 'application/grpc', te: 'trailers' });
      const read = (headers) => headers['grpc-status'] && (console.log(headers['grpc-status']), process.exit());
      call.on('response', read).on('trailers', read).end(Buffer.alloc(5));`;
    await cluster.apply(nodePod(cluster, { name: 'caller', namespace, script, spec: { restartPolicy: 'Never' } }));
    await cluster.waitFor(namespace, 'pod/caller', 'jsonpath={.status.phase}=Succeeded');
    expect(await logs('caller')).toBe(`${UNAUTHENTICATED}\n`);
  });

  it('gives agents git, ripgrep, a C toolchain, Python and Node in a workspace of their own', async () => {
    const work = `set -e
      git init -q project && cd project && echo 'int main(void) { return 0; }' > main.c
      printf 'all:\\n\\tcc -o main main.c\\n' > Makefile && make -s && ./main
      git add main.c && git -c user.name=agent -c user.email=agent@example.com commit -qm first
      rg -l 'int main' . | sort && python3 -c 'import ssl, sqlite3; print("python")' && node -p '"node"' && whoami`;
    await cluster.apply(sandboxPod('tools', { command: [...INIT, 'bash', '-c', work] }));
    await cluster.waitFor(namespace, 'pod/tools', 'jsonpath={.status.phase}=Succeeded');
    expect((await logs('tools')).split('\n')).toEqual(['./main.c', 'python', 'node', 'agent', '']);
  });

  it('reaps what commands of a sandbox leave behind, though the daemon would not', async () => {
    // The shell ends at once, so its child becomes one of the first process.
    const script = `const { execFileSync } = require('node:child_process');
      execFileSync('bash', ['-c', 'sleep 0.2 & disown']);
      setTimeout(() => console.log(execFileSync('ps', ['-e', '-o', 'pid=,stat=,comm=']).toString()), 1000);`;
    await cluster.apply(sandboxPod('orphan', { command: [...INIT, '/usr/bin/node', '-e', script] }));
    await cluster.waitFor(namespace, 'pod/orphan', 'jsonpath={.status.phase}=Succeeded');
    const processes = (await logs('orphan')).trim().split('\n');
    expect(processes[0]).toMatch(/^ *1 .*tini$/);
    expect(processes.filter((line) => / Z/.test(line))).toEqual([]);
  });
});

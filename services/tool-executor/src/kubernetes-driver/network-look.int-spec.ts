import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { createServer, type AddressInfo, type Server } from 'node:net';
import { once } from 'node:events';
import { ClusterFixture } from '../spec/cluster-fixture';
import type { FakeObject } from '../spec/fake-cluster';
import { Collection } from './collection';
import { Endings } from './endings';
import { NetworkLook } from './network-look';
import { PROBE_LABEL, SHUT_PORT } from './network-pods';
import { Pods } from './pods';
import type { SandboxContext } from './sandbox-context';

let fixture: ClusterFixture;
let context: SandboxContext;
let server: Server;
let open: string;
/** Ports of the listening pod that tool-executor reaches. */
let reachable: number[];

beforeAll(async () => {
  fixture = await new ClusterFixture().start();
  context = await fixture.context();
  server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  open = `127.0.0.1:${(server.address() as AddressInfo).port}`;
}, 600_000);
afterAll(async () => {
  server.close();
  await fixture.close();
});
beforeEach(() => {
  reachable = [7777];
  fixture.cluster.onPod = (pod) => void run(pod);
});

/** As a kubelet would, with the report where the container leaves its last words. */
async function run(pod: FakeObject): Promise<void> {
  const [{ command }] = pod.spec['containers'] as [{ command: [string, string, string] }];
  if (command[2].includes('createServer')) {
    fixture.cluster.setStatus(pod, { podIP: '127.0.0.1', containerStatuses: [{ state: { running: {} } }] });
    return;
  }
  const script = command[2].replace("require('fs').writeFileSync('/dev/termination-log', ", 'console.log(');
  const { stdout: message } = await promisify(execFile)(process.execPath, ['-e', script]);
  fixture.cluster.setStatus(pod, { containerStatuses: [{ state: { terminated: { exitCode: 0, message } } }] });
}

const look = (closed: Record<string, string> = {}) =>
  new NetworkLook({
    api: context.api,
    settings: context.settings,
    questions: { closed, nameServers: [] },
    isOpen: async (_, port) => reachable.includes(port),
  }).look('test');

it('says that policies hold where what must be open is, and the rest is closed', async () => {
  expect(await look({ nothing: '127.0.0.1:1' })).toEqual({ holds: true, detail: expect.stringContaining('both ways') });
  expect(fixture.cluster.list('pods')).toEqual([]);
}, 300_000);

it('names what a sandbox reaches, and a port that no policy opens', async () => {
  reachable.push(SHUT_PORT);
  const { holds, detail } = await look({ 'the store': open });
  expect(holds).toBe(false);
  expect(detail).toMatch(/sandboxes reach the store.*ports of sandboxes are open/);
}, 300_000);

it('concludes nothing where its pod ends without a word, and leaves none behind', async () => {
  fixture.cluster.onPod = (pod) => {
    const state = { terminated: { exitCode: 1 } };
    const [{ command }] = pod.spec['containers'] as [{ command: string[] }];
    if (command[2]?.includes('createServer')) void run(pod);
    else fixture.cluster.setStatus(pod, { containerStatuses: [{ state }] });
  };
  await expect(look()).rejects.toMatchObject({ reason: 'network_probe' });
  expect(fixture.cluster.list('pods')).toEqual([]);
}, 300_000);

it('concludes nothing where the listening pod has ended before the other one was done', async () => {
  fixture.cluster.onPod = (pod) => {
    const [{ command }] = pod.spec['containers'] as [{ command: string[] }];
    if (!command[2]?.includes('createServer')) reachable = [];
    void run(pod);
  };
  await expect(look()).rejects.toMatchObject({ reason: 'network_probe' });
}, 300_000);

it('is broken off at once when its process ends, and leaves none behind', async () => {
  fixture.cluster.onPod = () => undefined;
  const ending = new AbortController();
  const { api, settings } = context;
  const questions = { closed: {}, nameServers: [] };
  const looking = new NetworkLook({ api, settings, questions, signal: ending.signal }).look('test');
  await fixture.until(() => fixture.cluster.list('pods').length === 1);
  ending.abort();
  await expect(looking).rejects.toMatchObject({ name: 'AbortError' });
  expect(fixture.cluster.list('pods')).toEqual([]);
}, 300_000);

it('is hardened like a sandbox, and taken for one by policies alone', async () => {
  const made: FakeObject[] = [];
  fixture.cluster.onPod = (pod) => {
    made.push(structuredClone(pod));
    void run(pod);
  };
  await look();
  expect(made).toHaveLength(2);
  for (const { spec, metadata } of made) {
    expect(spec).toMatchObject({
      automountServiceAccountToken: false,
      restartPolicy: 'Never',
      securityContext: { runAsNonRoot: true },
      containers: [{ securityContext: { readOnlyRootFilesystem: true, capabilities: { drop: ['ALL'] } } }],
    });
    expect(metadata.labels).toMatchObject({ 'margay.dev/component': 'sandbox', [PROBE_LABEL]: 'true' });
    expect(metadata.labels).not.toHaveProperty('margay.dev/sandbox-id');
  }
}, 300_000);

it('is not collected as an orphan before it has had its time', async () => {
  let now = Date.now();
  const labels = { 'app.kubernetes.io/managed-by': 'margay', 'margay.dev/install': 'spec', 'margay.dev/component': 'sandbox', [PROBE_LABEL]: 'true' }; // prettier-ignore
  fixture.cluster.add('Pod', 'mg-net-left', labels);
  const collection = new Collection(context, new Endings(context, new Pods(context)), { idleMs: 1e6, now: () => now });
  for (let minute = 0; minute < 4; minute += 1) {
    await collection.sweep();
    now += 60_000;
  }
  expect(fixture.cluster.list('pods')).toHaveLength(1);
  for (let minute = 0; minute < 3; minute += 1) {
    now += 60_000;
    await collection.sweep();
  }
  expect(fixture.cluster.list('pods')).toEqual([]);
}, 300_000);

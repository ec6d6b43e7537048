import { setTimeout as sleep } from 'node:timers/promises';
import type { executorPb } from '@margay/contracts';
import { ExecutorPods, type ExecutorClient } from './executor-pods';
import { ClusterHarness } from './harness';
import { nodePod } from './pods';

jest.setTimeout(300_000);

const CLASS = {
  cpu: { request: '50m', limit: '1' },
  memory: { request: '64Mi', limit: '512Mi' },
  workspace: '256Mi',
  scratch: '256Mi',
  egress: 'none',
};
/** The pool is looked at, and counted, once within so long. */
const POOL_MS = 2_500;
/** By then what has no record is collected. */
const COLLECTED_MS = 15_000;
const cluster = new ClusterHarness();
const opened: ExecutorPods[] = [];
afterAll(async () => {
  for (const pods of opened) await pods.close();
  await cluster.stop();
});

async function open(storage: 'volume' | 'snapshot', warm: number): Promise<ExecutorPods> {
  const pods = await ExecutorPods.open(cluster, { default: { ...CLASS, storage, warm: { min: warm, max: warm } } });
  opened.push(pods);
  return pods;
}

const soon = (what: string, check: () => Promise<void>, timeoutMs = 60_000) => cluster.until(what, check, timeoutMs);

/** What we asked of the API server for the sandboxes of one namespace, in order. */
async function writesTo(namespace: string): Promise<string[]> {
  const writes = (await cluster.auditedWrites()).filter((write) => write.namespace === namespace);
  const ours = writes.filter(({ user, code = 200 }) => /:executor$/.test(user) && code < 300);
  return ours.map(({ verb, resource, name = '' }) => `${verb} ${resource} ${name}`);
}

async function podOf(pods: ExecutorPods, sessionId: string): Promise<string> {
  const names = (await pods.labelled(sessionId)).filter((name) => name.startsWith('pod/'));
  expect(names).toHaveLength(1);
  return (names[0] ?? '').slice('pod/'.length);
}

describe('a waiting sandbox', () => {
  let pods: ExecutorPods;
  let client: ExecutorClient;
  let metrics: () => Promise<string>;
  beforeAll(async () => {
    pods = await open('volume', 4);
    ({ client, metrics } = await pods.start('one'));
    await soon('four wait', async () => expect(await warmCount(metrics)).toBe(4), 120_000);
  });

  it('serves the first call of a session at once, for five writes of ours in its life', async () => {
    expect((await pods.shell(client, 'warm1', 'echo hello')).output).toBe('hello\n');
    expect(await metrics()).toMatch(/claim_duration_seconds_count\{class="default",path="warm"\} 1/);
    const name = await podOf(pods, 'warm1');
    const its = async () =>
      (await writesTo(pods.boxes)).filter((write) => write.endsWith(name)).map((write) => write.split(' ').slice(0, 2).join(' ')); // prettier-ignore
    const bound = ['create persistentvolumeclaims', 'create pods', 'patch pods', 'patch persistentvolumeclaims'];
    await soon('its volume is labelled', async () => expect(await its()).toEqual(bound));
    await pods.end(client, 'warm1');
    await soon('nothing is left', async () => expect(await pods.labelled('warm1')).toEqual([]));
    expect(await its()).toEqual([...bound, 'delete pods']);
  });

  it('is one for twenty calls at once, at two replicas', async () => {
    const other = (await pods.start('two')).client;
    const calls = Array.from({ length: 20 }, (_, n) =>
      pods.shell(n % 2 === 0 ? client : other, 'crowd', 'echo x >> count'),
    );
    for (const { finished } of await Promise.all(calls)) expect(finished?.status).toBe('ok');
    await podOf(pods, 'crowd');
    // Two replicas look after the pool, one at a time.
    const asBefore = async () => {
      expect(await pods.waiting()).toHaveLength(4);
      expect(await warmCount(metrics)).toBe(4);
    };
    await soon('as many wait as before', asBefore, 120_000);
    expect((await pods.shell(other, 'crowd', 'wc -l < count')).output.trim()).toBe('20');
  });

  it('leaves its files to the next one of the session', async () => {
    await pods.shell(client, 'kept', 'echo kept > file');
    const first = await podOf(pods, 'kept');
    await pods.end(client, 'kept');
    await soon('it is gone', async () => expect(await pods.labelled('kept')).toEqual([]));
    expect((await pods.shell(client, 'kept', 'cat file')).output).toBe('kept\n');
    expect(await podOf(pods, 'kept')).not.toBe(first);
  });
});

describe('a session without a waiting sandbox', () => {
  let pods: ExecutorPods;
  let client: ExecutorClient;
  beforeAll(async () => {
    pods = await open('snapshot', 0);
    ({ client } = await pods.start('one'));
  });

  it('pain 28: goes on in another pod when its own is deleted in mid-command', async () => {
    const { incarnation } = await pods.shell(client, 'lost', 'echo first');
    const running = pods.shell(client, 'lost', 'echo up > up; sleep 120', incarnation);
    await soon('it runs', async () => expect((await pods.shell(client, 'lost', 'cat up')).output).toBe('up\n'));
    const name = await podOf(pods, 'lost');
    await cluster.kubectl(['-n', pods.boxes, 'delete', 'pod', name, '--grace-period=0', '--force']);
    expect((await running).finished).toMatchObject({ status: 'unknown' });
    expect((await pods.shell(client, 'lost', 'echo again')).output).toBe('again\n');
    expect(await podOf(pods, 'lost')).not.toBe(name);
  });

  it('pain 26: gives the calls of an evicted pod their time, and new ones another pod', async () => {
    await pods.shell(client, 'evicted', 'true');
    const name = await podOf(pods, 'evicted');
    const running = pods.shell(client, 'evicted', 'echo up > up; sleep 8; echo done');
    await soon('it runs', async () => expect((await pods.shell(client, 'evicted', 'cat up')).output).toBe('up\n'));
    const eviction = { apiVersion: 'policy/v1', kind: 'Eviction', metadata: { name, namespace: pods.boxes } };
    const path = `/api/v1/namespaces/${pods.boxes}/pods/${name}/eviction`;
    await cluster.kubectl(['create', '--raw', path, '-f', '-'], { input: JSON.stringify(eviction) });
    const elsewhere = await pods.shell(client, 'evicted', 'hostname');
    expect(elsewhere.output.trim()).not.toBe(name);
    expect(await running).toMatchObject({ output: 'done\n', finished: { status: 'ok' } });
    await soon('its pod is gone', async () =>
      expect(await cluster.kubectl(['-n', pods.boxes, 'get', 'pod', name, '--ignore-not-found'])).toBe(''),
    );
  });

  it('reports a call whose container was ended as killed, not unknown, and goes on in the same pod', async () => {
    const { incarnation } = await pods.shell(client, 'ended', 'echo first');
    const name = await podOf(pods, 'ended');
    // The parent of every command is the daemon; with it the container ends, as it does when memory runs out.
    const { finished } = await pods.shell(client, 'ended', 'kill -9 $PPID; sleep 60', incarnation);
    expect(finished).toMatchObject({ status: 'killed', limitHit: 'restart' });
    expect((await pods.shell(client, 'ended', 'echo alive', incarnation)).output).toBe('alive\n');
    expect(await podOf(pods, 'ended')).toBe(name);
  });

  it('pain 27: is told that a quota is in the way, and goes on when it is not any more', async () => {
    const quota = (hard: string) => ({
      apiVersion: 'v1',
      kind: 'ResourceQuota',
      metadata: { name: 'few', namespace: pods.boxes },
      spec: { hard: { pods: hard } },
    });
    await cluster.apply(quota('0'));
    await soon('the quota is counted', async () =>
      expect(await cluster.get<{ status: object }>(pods.boxes, 'resourcequota', 'few')).toMatchObject({
        status: { hard: { pods: '0' } },
      }),
    );
    const waits: executorPb.ExecuteWaiting[] = [];
    const call = pods.call(client, 'poor', { args: { command: 'echo rich' }, waits });
    await soon('it is told to wait', async () => expect(waits).not.toEqual([]));
    await cluster.kubectl(['-n', pods.boxes, 'delete', 'resourcequota', 'few']);
    const { output } = await call;
    expect(output).toBe('rich\n');
    expect(waits[0]).toMatchObject({ reason: 'quota', message: expect.stringContaining('exceeded quota') });
  });

  it("fails at once, in the kubelet's words, where its image is not there", async () => {
    const { client: other } = await pods.start('other', {
      MARGAY_SANDBOX_IMAGE: 'local.test/nowhere:1',
      MARGAY_SANDBOX_PULL_POLICY: 'Never',
    });
    await expect(pods.shell(other, 'imageless', 'true')).rejects.toMatchObject({
      reason: 'sandbox_unavailable',
      message: expect.stringContaining('image'),
    });
    await soon('nothing is left', async () => expect(await pods.labelled('imageless')).toEqual([]));
  });

  it('runs as nobody, with nothing of the cluster in reach', async () => {
    const probe = [
      'id -u; touch /x 2>&1; ls /var/run/secrets/kubernetes.io 2>&1',
      'grep -E "^(CapEff|NoNewPrivs|Seccomp):" /proc/self/status; cat /etc/resolv.conf; mount -t tmpfs t /tmp 2>&1',
      'env | grep -i -E "secret|token|password|KUBERNETES"; unshare -U true 2>&1; exit 0',
    ].join('; ');
    const { output } = await pods.shell(client, 'nobody', probe);
    expect(output).toMatch(/^1000\n/);
    expect(output).toMatch(/\/x.*Read-only file system/);
    expect(output).toMatch(/kubernetes\.io.*No such file/);
    expect(output).toMatch(/CapEff:\s+0000000000000000/);
    expect(output).toMatch(/NoNewPrivs:\s+1/);
    expect(output).toMatch(/Seccomp:\s+2/);
    expect(output).toMatch(/nameserver 127\.0\.0\.1/);
    expect(output).not.toMatch(/KUBERNETES_|TOKEN=|PASSWORD=/i);
  });
});

describe('pain 25: tool-executor killed at a step of a claim', () => {
  const COLD = ['sandbox.after-record', 'sandbox.after-volume', 'sandbox.after-pod', 'sandbox.before-ready'];
  const WARM = ['sandbox.after-bind', 'sandbox.before-ready', 'sandbox.after-ready'];
  const ENDING = ['sandbox.before-delete', 'sandbox.after-delete'];
  let pods: ExecutorPods;
  let survivor: ExecutorClient;
  let twinSinceMs: number;

  beforeAll(async () => {
    pods = await open('volume', 0);
    survivor = (await pods.start('survivor')).client;
    // As a sandbox of somebody else's would look.
    const labels = { 'margay.dev/session-id': 'twin', 'margay.dev/sandbox-id': '0'.repeat(20) };
    const script = 'setInterval(() => undefined, 1e6)';
    await cluster.apply(nodePod(cluster, { name: 'twin', namespace: pods.boxes, labels, script }));
    await cluster.waitFor(pods.boxes, 'pod/twin', 'condition=Ready');
    twinSinceMs = performance.now();
  });

  const nameOf = (point: string, kind: string) => `${kind}-${point.slice('sandbox.'.length)}`;

  it.each(COLD)('%s leaves nothing of the session behind', async (point) => {
    const sessionId = nameOf(point, 'cold');
    const { client } = await pods.start(sessionId, { MARGAY_FAULT_POINTS: `${point}=kill?${sessionId}` });
    await expect(pods.shell(client, sessionId, 'true')).rejects.toThrow();
    await pods.end(survivor, sessionId);
    await soon('nothing is left', async () => expect(await pods.labelled(sessionId)).toEqual([]), 70_000);
  });

  it.each(ENDING)('%s leaves nothing of the session behind', async (point) => {
    const sessionId = nameOf(point, 'end');
    const { client } = await pods.start(sessionId, { MARGAY_FAULT_POINTS: `${point}=kill?${sessionId}` });
    expect((await pods.shell(client, sessionId, 'echo here')).output).toBe('here\n');
    await expect(pods.end(client, sessionId)).rejects.toThrow();
    await pods.end(survivor, sessionId);
    await soon('nothing is left', async () => expect(await pods.labelled(sessionId)).toEqual([]), 70_000);
  });

  it('goes on elsewhere where it broke off', async () => {
    const sessionId = 'resumed';
    const { client } = await pods.start('breaks', { MARGAY_FAULT_POINTS: `sandbox.after-pod=kill?${sessionId}` });
    await expect(pods.shell(client, sessionId, 'true')).rejects.toThrow();
    expect((await pods.shell(survivor, sessionId, 'echo here')).output).toBe('here\n');
    await podOf(pods, sessionId);
    await pods.end(survivor, sessionId);
  });

  describe('with one that waits', () => {
    let warm: ExecutorPods;
    let keeper: ExecutorClient;
    let keeperMetrics: () => Promise<string>;
    beforeAll(async () => {
      warm = await open('snapshot', 1);
      ({ client: keeper, metrics: keeperMetrics } = await warm.start('keeper'));
    });

    it.each(WARM)('%s of a waiting one leaves nothing of the session behind', async (point) => {
      await soon('one waits', async () => expect(await warmCount(keeperMetrics)).toBe(1), 120_000);
      const sessionId = nameOf(point, 'warm');
      const { client } = await warm.start(sessionId, { MARGAY_FAULT_POINTS: `${point}=kill?${sessionId}` });
      // Its call goes before the claim is written down.
      await expect(warm.shell(client, sessionId, 'sleep 20')).rejects.toThrow();
      await warm.end(keeper, sessionId);
      await soon('nothing is left', async () => expect(await warm.labelled(sessionId)).toEqual([]), 70_000);
      // Until the next look of the pool it counts as before.
      await sleep(POOL_MS);
    });
  });

  it('touches nothing that does not carry all our labels', async () => {
    await sleep(Math.max(0, COLLECTED_MS - (performance.now() - twinSinceMs)));
    await cluster.waitFor(pods.boxes, 'pod/twin', 'condition=Ready', 5);
  });
});

async function warmCount(metrics: () => Promise<string>): Promise<number> {
  return Number(/margay_sandbox_pool\{class="default",state="warm"\} (\d+)/.exec(await metrics())?.[1] ?? 0);
}

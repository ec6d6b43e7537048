import { createHash } from 'node:crypto';
import { armFaultPoints, createLogger } from '@margay/platform';
import { nothingHeard, type Heard } from '../executor-fixture';
import { ClusterFixture } from '../spec/cluster-fixture';

let fixture: ClusterFixture;
beforeEach(async () => {
  fixture = await new ClusterFixture().start();
}, 600_000);
afterEach(() => fixture.close(), 60_000);

const writesOf = (name: string): string[] =>
  fixture.cluster.writes.filter((write) => write.name === name).map(({ verb, plural }) => `${verb} ${plural}`);

const places = ({ waits }: Heard) => waits.map(({ queuePosition }) => queuePosition);

describe('a session on a cluster', () => {
  it('gets a waiting sandbox, which costs five writes in its life, and its volume stays', async () => {
    const executor = await fixture.replica(1);
    await fixture.untilWarm(1);
    const first = await executor.shell('echo $MARGAY_SESSION_ID; echo kept > file');
    expect(first).toMatchObject({ output: 's1\n', waits: [] });
    const [pod] = fixture.podsOf('s1');
    const name = pod?.metadata.name ?? '';
    expect(pod?.metadata.labels).toMatchObject({ 'margay.dev/tenant-id': 't1' });
    await fixture.until(() => writesOf(name).length === 4);
    await executor.client.release({ sessionId: 's1' }, executor.principal);
    await fixture.until(() => fixture.podsOf('s1').length === 0);
    expect(writesOf(name)).toEqual([
      'create persistentvolumeclaims',
      'create pods',
      'patch pods',
      'patch persistentvolumeclaims',
      'delete pods',
    ]);
    expect(await executor.metrics).toMatch(
      /margay_sandbox_claim_duration_seconds_count\{class="default",path="warm"\} 1/,
    );
    // The next one starts on what the first has left.
    const second = await executor.shell('cat file');
    expect(second.output).toBe('kept\n');
    expect(fixture.podsOf('s1')[0]?.metadata.name).not.toBe(name);
    expect(
      fixture.cluster.list('persistentvolumeclaims').filter(({ metadata }) => metadata.name === name),
    ).toHaveLength(1);
  }, 60_000);

  it('is known by its address as soon as its new sandbox hears whose it is', async () => {
    const executor = await fixture.replica(0);
    const disarm = armFaultPoints('sandbox.before-ready=pause:2000', createLogger({ level: 'off' }));
    try {
      const running = executor.shell('true');
      await fixture.until(async () => (await fixture.rows()).some(({ ip }) => ip !== undefined));
      expect(await fixture.rows()).toMatchObject([{ state: 'starting', sessionId: 's1' }]);
      expect((await running).finished?.status).toBe('ok');
    } finally {
      disarm();
    }
  }, 60_000);

  it('has one pod, however many calls come at once at however many replicas', async () => {
    const one = await fixture.replica(2);
    const other = await fixture.replica(2);
    await fixture.untilWarm(2);
    const calls = Array.from({ length: 10 }, (_, n) => [
      one.shell('echo x >> count', {}, { callId: `s1.1.1.${n}` }),
      other.shell('echo x >> count', {}, { callId: `s1.1.2.${n}` }),
    ]).flat();
    for (const { finished } of await Promise.all(calls)) expect(finished?.status).toBe('ok');
    expect(fixture.podsOf('s1')).toHaveLength(1);
    expect((await other.shell('wc -l < count')).output.trim()).toBe('20');
    // A replica that has never used it fences it all the same.
    const third = await fixture.replica(2);
    await third.client.fenceSession({ sessionId: 's1', epoch: 5, kill: true, background: true }, third.principal);
    await expect(one.shell('true', { epoch: 4 })).rejects.toMatchObject({ reason: 'stale_epoch' });
  }, 60_000);

  it('loses its pod in mid-command and goes on in another one', async () => {
    const executor = await fixture.replica(0);
    await executor.shell('echo x > file');
    const [pod] = fixture.podsOf('s1');
    const running = executor.shell('echo up > up; sleep 60');
    await fixture.until(async () => (await executor.shell('cat up')).output === 'up\n');
    await fixture.kubelet.kill(pod as NonNullable<typeof pod>);
    fixture.cluster.remove(pod as NonNullable<typeof pod>);
    expect((await running).finished).toMatchObject({ status: 'unknown' });
    expect((await executor.shell('cat file')).output).toBe('x\n');
    const rows = await fixture.rows();
    expect(rows.map(({ state }) => state).sort()).toEqual(['lost', 'ready']);
    expect(await executor.metrics).toMatch(/margay_sandbox_lost_total\{cause="pod_gone"\} 1/);
  }, 60_000);

  it('leaves it to the replica that has noticed a loss to call it one', async () => {
    const executor = await fixture.replica(0);
    await executor.shell('true');
    const [pod] = fixture.podsOf('s1') as [NonNullable<ReturnType<ClusterFixture['podsOf']>[0]>];
    const { sandboxes } = await fixture.context();
    await fixture.until(async () => (await fixture.rows())[0]?.state === 'ready');
    const [row] = (await fixture.rows()) as [Awaited<ReturnType<ClusterFixture['rows']>>[0]];
    // As another replica has it until it has seen to the pod.
    const draining = await sandboxes.finish(row, 'draining', 'pod_gone');
    await fixture.kubelet.kill(pod);
    fixture.cluster.remove(pod);
    expect((await executor.shell('echo on')).output).toBe('on\n');
    expect(await sandboxes.find(row._id)).toMatchObject({ state: 'draining', reason: 'pod_gone' });
    expect(await sandboxes.finish(draining as typeof row, 'lost', 'pod_gone')).toMatchObject({ state: 'lost' });
  }, 60_000);

  it('lets calls of a pod that is told to leave end, and starts no new one there', async () => {
    const executor = await fixture.replica(0);
    await executor.shell('true');
    const [pod] = fixture.podsOf('s1') as [NonNullable<ReturnType<ClusterFixture['podsOf']>[0]>];
    const running = executor.shell('echo up > up; while [ ! -e go ]; do sleep 0.1; done; echo done');
    await fixture.until(async () => (await executor.shell('cat up')).output === 'up\n');
    const url = new URL(`/api/v1/namespaces/test/pods/${pod.metadata.name}`, fixture.url);
    await fetch(url, { method: 'DELETE', body: '{"gracePeriodSeconds": 90}' });
    await fixture.until(async () => (await fixture.rows()).some(({ state }) => state === 'draining'));
    await executor.shell('touch go');
    expect((await running).output).toBe('done\n');
    await fixture.until(async () => (await fixture.rows()).some(({ state }) => state === 'released'));
  }, 60_000);
});

describe('an attached file on a cluster', () => {
  it('lies in the pod', async () => {
    const executor = await fixture.replica(0);
    const content = Buffer.from('attached');
    const sha256 = createHash('sha256').update(content).digest('hex');
    const piece = { name: 'notes.txt', sha256, totalBytes: content.length, offset: 0, content };
    const placed = await executor.client.placeAttachment(piece, { grant: await executor.token() });
    expect(placed).toEqual({ done: true, nextOffset: content.length });
    expect((await executor.shell('cat $MARGAY_ATTACHMENTS/notes.txt')).output).toBe('attached');
  }, 60_000);
});

describe('a project on a cluster', () => {
  const project = { kind: 'project' as const, projectId: 'a'.repeat(32) };

  it('is one volume for all its sessions, also for those that come at once', async () => {
    const executor = await fixture.replica(0);
    const [one, other] = await Promise.all(
      ['p1', 'p2'].map((sessionId) =>
        executor.shell(`echo ${sessionId} > ${sessionId}`, { sessionId, workspace: project }),
      ),
    );
    expect([one?.finished?.status, other?.finished?.status]).toEqual(['ok', 'ok']);
    const seen = await executor.shell('cat p1 p2', { sessionId: 'p1', workspace: project });
    expect(seen.output).toBe('p1\np2\n');
    const elsewhere = await executor.shell('ls', {
      sessionId: 'p3',
      workspace: { ...project, projectId: 'b'.repeat(32) },
    });
    expect(elsewhere.output).toBe('');
  }, 60_000);

  it('takes the place of the workspace that a session had of its own', async () => {
    const executor = await fixture.replica(0);
    await executor.shell('touch own', { sessionId: 'q1' });
    await executor.shell('touch shared', { sessionId: 'q2', workspace: project });
    expect((await executor.shell('ls', { sessionId: 'q1', workspace: project })).output).toBe('shared\n');
    expect((await executor.shell('ls', { sessionId: 'q1' })).output).toBe('own\n');
  }, 60_000);
});

describe('a claim that the cluster refuses', () => {
  it('waits for its turn where its tenant has all it may have, and says how many come before', async () => {
    const one = await fixture.replica(0, { MARGAY_SANDBOX_TENANT_MAX: '1' });
    const other = await fixture.replica(0, { MARGAY_SANDBOX_TENANT_MAX: '1' });
    await one.shell('true', { sessionId: 'q1' });
    const inQueue = async (count: number) => (await fixture.waiting.count('t1', 'nobody')) === count;
    const second = nothingHeard();
    const secondCall = one.shell('echo second', { sessionId: 'q2' }, {}, second);
    await fixture.until(() => inQueue(1));
    const third = nothingHeard();
    const thirdCall = other.shell('echo third', { sessionId: 'q3' }, {}, third);
    await fixture.until(() => inQueue(2));
    await fixture.until(() => places(second).includes(1) && places(third).includes(2));
    await one.client.release({ sessionId: 'q1' }, one.principal);
    expect((await secondCall).output).toBe('second\n');
    expect(second.waits[0]).toMatchObject({ state: 'queued', reason: 'tenant_limit', queuePosition: 1 });
    await fixture.until(() => places(third).includes(1));
    await one.client.release({ sessionId: 'q2' }, one.principal);
    expect((await thirdCall).output).toBe('third\n');
  }, 120_000);

  it('says that a quota is in the way, and gets its pod when it is not any more', async () => {
    const executor = await fixture.replica(0);
    fixture.cluster.podQuota = 0;
    const heard = nothingHeard();
    const call = executor.shell('echo here', {}, {}, heard);
    await fixture.until(() => heard.waits.length > 0);
    fixture.cluster.podQuota = 5;
    expect((await call).output).toBe('here\n');
    expect(heard.waits[0]).toMatchObject({
      state: 'starting',
      reason: 'quota',
      message: expect.stringContaining('exceeded quota'),
      attempt: 1,
    });
  }, 120_000);

  it('says that no sandbox waited for it, while one is started', async () => {
    const executor = await fixture.replica(1, { MARGAY_SANDBOX_POOL_SECONDS: '3600' });
    fixture.kubelet.waiting = { reason: 'ContainerCreating', message: '' };
    const heard = nothingHeard();
    const call = executor.shell('echo here', {}, {}, heard);
    await fixture.until(() => heard.waits.some(({ reason }) => reason === 'warm_pool_empty'));
    fixture.kubelet.goOn();
    expect((await call).output).toBe('here\n');
    expect(heard.waits).toContainEqual(expect.objectContaining({ state: 'starting', reason: 'warm_pool_empty' }));
  }, 120_000);

  it('says that an image is being pulled, and waits for it', async () => {
    const executor = await fixture.replica(0);
    fixture.kubelet.waiting = { reason: 'ErrImagePull', message: 'connection reset by peer' };
    const heard = nothingHeard();
    const call = executor.shell('echo here', {}, {}, heard);
    await fixture.until(() => heard.waits.some(({ reason }) => reason === 'image_pull'));
    fixture.kubelet.goOn();
    expect((await call).output).toBe('here\n');
    expect(heard.waits).toContainEqual(
      expect.objectContaining({ reason: 'image_pull', message: 'connection reset by peer' }),
    );
  }, 120_000);

  it("fails at once in the kubelet's words where waiting does not help", async () => {
    const executor = await fixture.replica(0);
    fixture.kubelet.waiting = { reason: 'ErrImageNeverPull', message: 'Container image is not present' };
    await expect(executor.shell('true')).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      reason: 'sandbox_unavailable',
      message: expect.stringContaining('Container image is not present'),
    });
    await fixture.until(() => fixture.podsOf('s1').length === 0);
  }, 60_000);
});

import { nothingHeard, type ExecutorFixture } from '../executor-fixture';
import { ClusterFixture } from '../spec/cluster-fixture';
import type { FakeObject } from '../spec/fake-cluster';

let fixture: ClusterFixture;
let executor: ExecutorFixture;
const START_MS = 600_000;
async function start(warm: number, more: Record<string, string> = {}): Promise<void> {
  fixture = await new ClusterFixture('snapshot').start();
  executor = await fixture.replica(warm, more);
}
afterEach(() => fixture.close());

const project = { kind: 'project' as const, projectId: 'a'.repeat(32) };
const podOf = (sessionId: string): FakeObject => fixture.podsOf(sessionId)[0] as FakeObject;

async function lose(sessionId: string): Promise<void> {
  const pod = podOf(sessionId);
  await fixture.kubelet.kill(pod);
  fixture.cluster.remove(pod);
  await fixture.until(async () => (await fixture.rows()).some(({ state }) => state === 'lost'));
}

/** As session does it when a run ends. */
async function endRun(sessionId: string, n: number): Promise<void> {
  await executor.client.fenceSession({ sessionId, epoch: 1, kill: false, background: false }, executor.principal);
  await fixture.until(async () => (await fixture.workspaces()).some(({ snapshot }) => snapshot?.n === n));
}

async function leave(pod: FakeObject): Promise<void> {
  const url = new URL(`/api/v1/namespaces/test/pods/${pod.metadata.name}`, fixture.url);
  await fetch(url, { method: 'DELETE', body: '{"gracePeriodSeconds": 90}' });
}

describe('a session whose files end with its pod', () => {
  beforeEach(() => start(0), START_MS);

  it('has them again after its sandbox was ended, and is told nothing', async () => {
    expect((await executor.shell('mkdir -p a/b; echo kept > a/b/file; chmod 640 a/b/file')).notices).toEqual([]);
    await executor.client.release({ sessionId: 's1' }, executor.principal);
    const again = await executor.shell('cat a/b/file; stat -c %a a/b/file');
    expect(again.output).toBe('kept\n640\n');
    expect(again.notices).toEqual([]);
    expect(await executor.metrics).toMatch(/margay_sandbox_claim_duration_seconds_count\{[^}]*path="restore"\} 1/);
    expect(await executor.metrics).toMatch(/margay_workspace_snapshot_duration_seconds_count\{kind="full"\} 1/);
    expect(fixture.cluster.list('persistentvolumeclaims')).toEqual([]);
  }, 120_000);

  it('pain 28: is restored when its pod is lost in mid-command, as of the end of the last run, and is told so', async () => {
    await executor.shell('echo one > file');
    await endRun('s1', 1);
    await executor.shell('echo two > later');
    const running = executor.shell('echo up > up; sleep 60');
    await fixture.until(async () => (await executor.shell('cat up')).output === 'up\n');
    await lose('s1');
    expect((await running).finished).toMatchObject({ status: 'unknown' });
    const after = await executor.shell('cat file; ls');
    expect(after.output).toBe('one\nfile\n');
    const notices = [...(await running).notices, ...after.notices];
    const [workspace] = await fixture.workspaces();
    expect(notices).toEqual([
      {
        type: 'workspace_restored',
        payload: { snapshot_id: `${workspace?._id}/1`, age_seconds: expect.any(Number) },
      },
    ]);
  }, 120_000);

  it('begins empty, and is told so, when nothing was ever archived', async () => {
    await executor.shell('echo x > file');
    await lose('s1');
    const { output, notices } = await executor.shell('ls');
    expect(output).toBe('');
    expect(notices).toEqual([{ type: 'workspace_restored', payload: { snapshot_id: null, age_seconds: null } }]);
    expect((await executor.shell('true')).notices).toEqual([]);
  }, 120_000);

  it('keeps what its last calls write while its pod is told to leave', async () => {
    await executor.shell('true');
    const pod = podOf('s1');
    const running = executor.shell('echo up > up; while [ ! -e go ]; do sleep 0.1; done; echo done > done');
    await fixture.until(async () => (await executor.shell('cat up')).output === 'up\n');
    const heard = nothingHeard();
    const left = executor.shell('echo here; sleep 2; touch go; sleep 1', {}, { timeoutMs: 30_000 }, heard);
    await fixture.until(() => heard.output === 'here\n');
    await leave(pod);
    await fixture.until(async () => (await fixture.rows()).some(({ state }) => state === 'draining'));
    const next = await executor.shell('cat done');
    expect(next.output).toBe('done\n');
    expect(next.notices).toEqual([]);
    for (const { finished } of await Promise.all([running, left])) expect(finished?.status).toBe('ok');
    // The one that leaves may still be there.
    expect(fixture.podsOf('s1').map(({ metadata }) => metadata.name)).toContainEqual(expect.not.stringContaining(pod.metadata.name)); // prettier-ignore
  }, 120_000);

  it('is told that its files could not be archived, and goes on', async () => {
    await fixture.close();
    await start(0, { MARGAY_SNAPSHOT_MAX_BYTES: '1000000' });
    await executor.shell('head -c 2000000 /dev/urandom > large; echo x > small');
    await executor.client.fenceSession(
      { sessionId: 's1', epoch: 1, kill: false, background: false },
      executor.principal,
    );
    await fixture.until(async () => (await fixture.rows())[0]?.unsaved === 'snapshot_too_large');
    const next = await executor.shell('cat small; rm large');
    expect(next.output).toBe('x\n');
    expect(next.notices).toMatchObject([
      { type: 'run_note', payload: { kind: 'workspace_snapshot_failed', reason: 'snapshot_too_large' } },
    ]);
    await endRun('s1', 1);
    await fixture.until(async () => (await fixture.rows())[0]?.unsaved === undefined);
  }, 120_000);

  it('is the same for every replica, and is not restored twice', async () => {
    await executor.shell('echo one > file');
    await executor.client.release({ sessionId: 's1' }, executor.principal);
    const other = await fixture.replica(0);
    expect((await executor.shell('cat file; echo two > file')).output).toBe('one\n');
    expect((await other.shell('cat file')).output).toBe('two\n');
  }, 120_000);
});

describe('a project whose files end with a pod', () => {
  beforeEach(() => start(0), START_MS);

  it('is forked for a second session, which goes on with what the first has at that time', async () => {
    await executor.shell('echo shared > file', { sessionId: 'p1', workspace: project });
    const second = await executor.shell('cat file; echo second > mine', { sessionId: 'p2', workspace: project });
    expect(second.output).toBe('shared\n');
    const [parent] = (await fixture.workspaces()).filter(({ key }) => key.startsWith('p/'));
    expect(second.notices).toEqual([
      { type: 'workspace_forked', payload: { from: parent?._id, snapshot_id: expect.stringMatching(/\/1$/) } },
    ]);
    await executor.shell('echo first > mine', { sessionId: 'p1', workspace: project });
    // Each stays with its own, also after its sandbox was ended.
    for (const sessionId of ['p1', 'p2']) await executor.client.release({ sessionId }, executor.principal);
    const texts = [];
    for (const sessionId of ['p2', 'p1'])
      texts.push((await executor.shell('cat mine', { sessionId, workspace: project })).output);
    expect(texts).toEqual(['second\n', 'first\n']);
  }, 120_000);

  it('is taken over by the next session once nobody has it', async () => {
    await executor.shell('echo shared > file', { sessionId: 'p1', workspace: project });
    await executor.client.release({ sessionId: 'p1' }, executor.principal);
    const next = await executor.shell('cat file', { sessionId: 'p2', workspace: project });
    expect(next).toMatchObject({ output: 'shared\n', notices: [] });
    expect(await fixture.workspaces()).toHaveLength(1);
  }, 120_000);
});

it('claims a waiting sandbox and brings the files into it, for three writes', async () => {
  await start(1);
  await fixture.untilWarm(1);
  await executor.shell('echo one > file');
  await executor.client.release({ sessionId: 's1' }, executor.principal);
  await fixture.until(() => fixture.podsOf('s1').length === 0);
  await fixture.untilWarm(1);
  expect((await executor.shell('cat file')).output).toBe('one\n');
  const { name } = podOf('s1').metadata;
  await executor.client.release({ sessionId: 's1' }, executor.principal);
  await fixture.until(() => fixture.podsOf('s1').length === 0);
  const writes = fixture.cluster.writes.filter((write) => write.name === name).map(({ verb }) => verb);
  expect(writes).toEqual(['create', 'patch', 'delete']);
}, 120_000);

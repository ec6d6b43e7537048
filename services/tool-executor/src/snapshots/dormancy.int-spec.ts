import type { ExecutorFixture } from '../executor-fixture';
import { ClusterFixture } from '../spec/cluster-fixture';

/** Whatever nobody uses sleeps after some seconds. */
const SLEEPY = { MARGAY_WORKSPACES_DORMANT_DAYS: '0.00003', MARGAY_WORKSPACE_SWEEP_SECONDS: '0.2' };
const MAKE_FILES =
  'mkdir -p deep/er; echo kept > deep/er/file; chmod 640 deep/er/file; chmod 750 deep; ln -s deep/er/file link; touch -d @1000000000 deep/er/file';
const LIST_FILES = 'find . -mindepth 1 -printf "%P %y %m %s %l\\n" | sort; cat deep/er/file; stat -c %Y deep/er/file';

let fixture: ClusterFixture;
let executor: ExecutorFixture;
afterEach(() => fixture.close());

async function start(more: Record<string, string> = {}): Promise<void> {
  fixture = await new ClusterFixture().start();
  executor = await fixture.replica(0, more);
}

const volumes = () => fixture.cluster.list('persistentvolumeclaims');
const workspace = async () =>
  (await fixture.workspaces())[0] as NonNullable<Awaited<ReturnType<typeof fixture.workspaces>>[0]>;

async function release(sessionId = 's1'): Promise<void> {
  await executor.client.release({ sessionId }, executor.principal);
  await fixture.until(() => fixture.podsOf(sessionId).length === 0);
}

describe('a volume that nobody uses', () => {
  it('becomes an archive, and is as it was when somebody comes again', async () => {
    await start(SLEEPY);
    const { output: before } = await executor.shell(`${MAKE_FILES}; ${LIST_FILES}`);
    const { volume } = await workspace();
    await release();
    await fixture.until(async () => (await workspace()).state === 'dormant');
    await fixture.until(() => volumes().length === 0);
    expect(await workspace()).toMatchObject({ snapshot: { n: 1 } });
    expect(await workspace()).not.toHaveProperty('volume');

    const again = await executor.shell(LIST_FILES);
    expect(again.output).toBe(before);
    expect(again.notices).toEqual([]);
    const now = await workspace();
    expect(now.state).toBe('live');
    expect(now).not.toHaveProperty('holder');
    expect(now.volume?.pvcUid).not.toBe(volume?.pvcUid);
    expect(volumes()).toHaveLength(1);
  }, 120_000);

  it('stays where it is while a session works there', async () => {
    await start(SLEEPY);
    await executor.shell('echo x > file');
    const calls = Array.from({ length: 8 }, () => executor.shell('sleep 1'));
    await Promise.all(calls);
    await executor.shell('sleep 4');
    expect((await workspace()).state).toBe('live');
  });

  it('wakes once for all sessions of a project that come at once', async () => {
    await start(SLEEPY);
    const project = { kind: 'project' as const, projectId: 'a'.repeat(32) };
    await executor.shell('echo shared > file', { sessionId: 'p1', workspace: project });
    await release('p1');
    await fixture.until(async () => (await workspace()).state === 'dormant');
    const seen = await Promise.all(
      ['p1', 'p2', 'p3'].map((sessionId) => executor.shell('cat file', { sessionId, workspace: project })),
    );
    expect(seen.map(({ output }) => output)).toEqual(['shared\n', 'shared\n', 'shared\n']);
    await executor.shell('echo more >> file', { sessionId: 'p2', workspace: project });
    expect((await executor.shell('cat file', { sessionId: 'p3', workspace: project })).output).toBe('shared\nmore\n');
    await fixture.until(() => volumes().length === 1);
  }, 120_000);
});

describe('snapshots on demand', () => {
  const asAda = () => executor.as('user:ada', 'owner');

  it('are taken, listed, and restored in the place of what there is', async () => {
    await start();
    await executor.shell('echo one > file; chmod 600 file');
    const { _id: workspaceId } = await workspace();
    const first = JSON.parse((await executor.snapshots.takeSnapshot({ workspaceId }, asAda())).snapshotJson) as object;
    expect(first).toMatchObject({ snapshot_id: `${workspaceId}/1`, n: 1, kind: 'full', entries: 1 });
    await executor.shell('echo two > file; touch other');
    await executor.snapshots.takeSnapshot({ workspaceId }, asAda());
    const { snapshotsJson } = await executor.snapshots.listSnapshots({ workspaceId }, asAda());
    expect(snapshotsJson.map((json) => (JSON.parse(json) as { n: number }).n)).toEqual([2, 1]);

    const busy = executor.snapshots.restoreSnapshot({ workspaceId, n: 1 }, asAda());
    await expect(busy).rejects.toMatchObject({ reason: 'workspace_in_use' });
    await release();
    const missing = executor.snapshots.restoreSnapshot({ workspaceId, n: 9 }, asAda());
    await expect(missing).rejects.toMatchObject({ reason: 'snapshot_not_found' });
    await executor.snapshots.restoreSnapshot({ workspaceId, n: 1 }, asAda());
    expect((await executor.shell('cat file; ls; stat -c %a file')).output).toBe('one\nfile\n600\n');
  }, 120_000);

  it('move a workspace to another volume, and the old one is left to the collection', async () => {
    await start();
    await executor.shell('echo kept > file');
    const { _id: workspaceId, volume } = await workspace();
    await release();
    const early = executor.snapshots.relocate({ workspaceId }, asAda());
    await expect(early).rejects.toMatchObject({ reason: 'no_snapshot' });
    await executor.snapshots.takeSnapshot({ workspaceId }, asAda());
    await executor.snapshots.relocate({ workspaceId }, asAda());
    expect(await workspace()).toMatchObject({ state: 'dormant' });
    expect((await executor.shell('cat file')).output).toBe('kept\n');
    expect((await workspace()).volume?.pvcName).not.toBe(volume?.pvcName);
    expect(volumes().map(({ metadata }) => metadata.name)).toContain(volume?.pvcName);
  }, 120_000);

  it('are nobody else’s business', async () => {
    await start();
    await executor.shell('true');
    const { _id: workspaceId } = await workspace();
    const foreign = executor.snapshots.listSnapshots({ workspaceId }, executor.as('user:eve', 'owner', 't2'));
    await expect(foreign).rejects.toMatchObject({ reason: 'workspace_not_found' });
    const viewer = executor.snapshots.takeSnapshot({ workspaceId }, executor.as('user:eve', 'member'));
    await expect(viewer).rejects.toMatchObject({ code: expect.stringMatching(/NOT_FOUND|PERMISSION_DENIED/) });
  });
});

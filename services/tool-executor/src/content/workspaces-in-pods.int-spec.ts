import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import type { WorkspaceView } from '@margay/contracts';
import { zipOf } from '@margay/testing';
import { ClusterFixture } from '../spec/cluster-fixture';
import type { ExecutorFixture } from '../executor-fixture';

jest.setTimeout(120_000);

const fixture = new ClusterFixture();
let one: ExecutorFixture;
let other: ExecutorFixture;

beforeAll(async () => {
  await fixture.start();
  const quick = { MARGAY_WORKSPACE_SWEEP_SECONDS: '0.3' };
  [one, other] = [await fixture.replica(0, quick), await fixture.replica(0, quick)];
}, 600_000);
afterAll(() => fixture.close());

const newId = () => randomBytes(16).toString('hex');
const parsed = ({ workspaceJson }: { workspaceJson: string }) => JSON.parse(workspaceJson) as WorkspaceView;
const rowOf = async (id: string) => (await fixture.workspaces()).find(({ _id }) => _id === id);

async function projectWith(content: object) {
  const projectId = newId();
  const request = { projectId, owner: 'user:ada', sourceJson: JSON.stringify(content) };
  const { workspaceId } = await one.workspacesOfSession.declare(request, one.principal);
  return { workspaceId, projectId, workspace: { kind: 'project', projectId } as const };
}

async function* archive(workspaceId: string) {
  const content = zipOf([{ name: 'src/a.txt', content: 'from the archive\n' }]);
  yield { workspaceId, filename: 'shop.zip', replace: false, content };
}

describe('a workspace on a cluster', () => {
  it('has its content on its volume before the first call, brought once for the sandboxes of all replicas', async () => {
    const { workspaceId, workspace } = await projectWith({ kind: 'upload' });
    // Either replica takes the file, and either brings it.
    await other.workspaces.upload(archive(workspaceId), other.as('user:ada'));
    const sessions = [newId(), newId(), newId(), newId()];
    const calls = sessions.map((sessionId, n) =>
      (n % 2 ? one : other).shell('cat src/a.txt', { sessionId, workspace }),
    );
    for (const { output } of await Promise.all(calls)) expect(output).toBe('from the archive\n');
    expect(await rowOf(workspaceId)).toMatchObject({ contentAttempt: 1, content: { status: 'ready' }, state: 'live' });
  });

  it('says why its content cannot be brought, and takes other content', async () => {
    const { workspaceId, workspace } = await projectWith({ kind: 'clone', url: 'https://localhost:9/a' });
    const sessionId = newId();
    // Nobody listens there, and this class of sandboxes has no way out.
    for (const replica of [one, other])
      await expect(replica.shell('true', { sessionId, workspace })).rejects.toMatchObject({
        reason: 'content_failed',
        message: expect.stringMatching(/egress_denied|network/),
      });
    const request = { workspaceId, sourceJson: '{"kind":"empty"}', replace: false };
    await one.workspaces.setContent(request, one.as('user:ada'));
    expect((await other.shell('head -1 CLAUDE.md', { sessionId, workspace })).output).toBe('# About this project\n');
  });

  it('is deleted with its pods, its volume by UID, and nothing else', async () => {
    const { workspaceId, workspace } = await projectWith({ kind: 'empty' });
    const { workspace: twin } = await projectWith({ kind: 'empty' });
    const [sessionId, twinSession] = [newId(), newId()];
    await one.shell('touch mine', { sessionId, workspace });
    await one.shell('echo kept > mine', { sessionId: twinSession, workspace: twin });
    const volume = (await rowOf(workspaceId))?.volume;
    const volumes = () => fixture.cluster.list('persistentvolumeclaims').map(({ metadata }) => metadata.uid);
    expect(volumes()).toContain(volume?.pvcUid);
    const before = volumes();
    const asked = await other.workspaces.delete({ workspaceId, ifMatch: '' }, other.as('user:ada'));
    expect(parsed(asked).state).toBe('deleting');
    await fixture.until(async () => (await rowOf(workspaceId))?.state.toString() === 'deleted');
    await fixture.until(() => fixture.podsOf(sessionId).length === 0);
    expect(volumes()).toEqual(before.filter((uid) => uid !== volume?.pvcUid));
    expect((await other.shell('cat mine', { sessionId: twinSession, workspace: twin })).output).toBe('kept\n');
    // The id is free for another beginning.
    expect((await other.shell('ls -A', { sessionId: newId(), workspace })).output).not.toContain('mine');
  });

  it('takes nobody in once it is told to go, also not who had begun before', async () => {
    const { workspaceId, projectId, workspace } = await projectWith({ kind: 'empty' });
    const calls = [newId(), newId()].map((sessionId) => one.shell('true', { sessionId, workspace }));
    const settled = Promise.allSettled(calls);
    await delay(30);
    await other.workspaces.delete({ workspaceId, ifMatch: '' }, other.as('user:ada'));
    for (const end of await settled)
      if (end.status === 'rejected') expect(end.reason).toMatchObject({ code: 'UNAVAILABLE' });
    await fixture.until(async () => (await rowOf(workspaceId))?.state.toString() === 'deleted');
    const pods = fixture.cluster.list('pods');
    expect(pods.filter(({ metadata }) => metadata.labels?.['margay.dev/workspace-id'] === workspaceId)).toEqual([]);
    await one.workspacesOfSession.retire({ projectId }, one.principal);
  });
});

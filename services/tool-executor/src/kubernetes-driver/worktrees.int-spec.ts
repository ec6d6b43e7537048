import type { ExecutorFixture } from '../executor-fixture';
import { ClusterFixture } from '../spec/cluster-fixture';

jest.setTimeout(120_000);

const PROJECT = { kind: 'project', projectId: 'd'.repeat(32) } as const;
const TREE = { kind: 'worktree', of: PROJECT, slug: 'fix' } as const;
const COMMIT = 'git -c user.name=a -c user.email=a@example.org commit -q';

const fixture = new ClusterFixture();

beforeAll(async () => {
  await fixture.start();
  await fixture.replica(0);
}, 600_000);
afterAll(() => fixture.close());

describe('a worktree on a cluster', () => {
  it('is a folder on the volume of its project, in pods of its own beside it', async () => {
    const executor = fixture.replicas[0] as ExecutorFixture;
    const inProject = { sessionId: 'w1', workspace: PROJECT };
    await executor.shell(`git init -q -b main . && echo one > a && git add . && ${COMMIT} -m first`, inProject);
    const workspaceJson = JSON.stringify(PROJECT);
    const made = await executor.client.addWorktree({ workspaceJson, slug: 'fix', branch: 'fix', base: 'main' }, executor.principal); // prettier-ignore
    expect(made).toMatchObject({ created: true, worktree: { slug: 'fix', clean: true } });
    const inTree = { sessionId: 'w2', workspace: TREE };
    expect((await executor.shell('cat a; git branch --show-current', inTree)).output).toBe('one\nfix\n');
    await executor.shell(`echo two > b && git add . && ${COMMIT} -m second`, inTree);
    expect((await executor.shell('git log -1 --format=%s fix', inProject)).output).toBe('second\n');
    const rows = await fixture.workspaces();
    const [project, tree] = ['p/', 'w/'].map((kind) => rows.find(({ key }) => key.startsWith(kind)));
    expect(tree).toMatchObject({ parentId: project?._id, subPath: '.margay/worktrees/fix' });
    expect(tree).not.toHaveProperty('volume');
    const pods = fixture.cluster.list('pods').filter(({ metadata }) => metadata.labels?.['margay.dev/session-id']);
    expect(new Set(pods.map(({ metadata }) => metadata.labels?.['margay.dev/workspace-id']))).toEqual(new Set([project?._id])); // prettier-ignore
    const removed = await executor.client.removeWorktree({ workspaceJson, slug: 'fix', force: true, deleteBranch: false }, executor.principal); // prettier-ignore
    expect(removed).toEqual({ removed: true });
    // Nothing keeps the project's volume from sleeping any more.
    expect((await fixture.workspaces()).map(({ key }) => key)).toEqual([project?.key]);
  });

  it('needs its project on a volume', async () => {
    const executor = fixture.replicas[0] as ExecutorFixture;
    const none = { ...TREE, of: { ...PROJECT, projectId: 'e'.repeat(32) } };
    await expect(executor.shell('ls', { sessionId: 'w3', workspace: none })).rejects.toMatchObject({
      reason: 'project_needs_volume',
    });
  });
});

import { sessionsPb, type ManagedProject, type Worktree } from '@margay/contracts';
import { ScriptedRunner } from '../spec/scripted-runner';
import { principalOf, SessionHarness } from '../spec/session-harness';

const harness = new SessionHarness();
const { git } = harness;
const ada = principalOf('default', 'user:ada', 'member');
const foreign = principalOf('elsewhere', 'user:ada', 'owner');

let project: string;

beforeAll(() => harness.start({ MARGAY_PROJECTS: JSON.stringify({ shop: { path: '/tmp' } }) }), 600_000);
afterAll(() => harness.stop());

beforeEach(async () => {
  const made = await harness.sessions.createProject(sessionsPb.CreateProjectRequest.fromPartial({ name: 'Site' }), {
    principal: ada,
  });
  project = (JSON.parse(made.projectJson) as ManagedProject).project_id;
  git.worktrees = [];
  git.dirty.clear();
  git.isAway = false;
});

const list = async (named = project, principal = ada) =>
  (await harness.sessions.listWorktrees({ project: named }, { principal })).worktreesJson.map(
    (json) => JSON.parse(json) as Worktree,
  );
const create = async (branch: string, { base = '', named = project, principal = ada } = {}) => {
  const made = await harness.sessions.createWorktree({ project: named, branch, base }, { principal });
  return { ...(JSON.parse(made.worktreeJson) as Worktree), replayed: made.replayed };
};
const remove = (worktreeId: string, { force = false, named = project, principal = ada } = {}) =>
  harness.sessions.deleteWorktree({ project: named, worktreeId, force }, { principal });

async function sessionIn(named: string): Promise<string> {
  const sessionId = await harness.createSession(ada, { project: named });
  await harness.accept(sessionId, 'go', '', ada);
  return sessionId;
}
const cancel = (sessionId: string) => harness.sessions.cancelRun({ sessionId, idempotencyKey: '' }, { principal: ada });
const terminate = (sessionId: string) => harness.sessions.terminateSession({ sessionId }, { principal: ada });

async function until(isTrue: () => Promise<boolean> | boolean): Promise<void> {
  while (!(await isTrue())) await new Promise((resolve) => setTimeout(resolve, 25));
}

const names = (worktrees: Worktree[]) => worktrees.map(({ branch }) => branch);

describe('a worktree', () => {
  it('is made for a branch, listed, and is a project of its own', async () => {
    const made = await create('feature/login', { base: 'main' });
    const id = `wt:${project}:feature-login`;
    expect(made).toMatchObject({
      project_id: id,
      branch: 'feature/login',
      path: '/workspace/.margay/worktrees/feature-login',
      managed: true,
      is_worktree: true,
      parent_project_id: project,
      parent_path: '/workspace',
      clean: true,
    });
    expect(git.added.at(-1)).toMatchObject({ slug: 'feature-login', branch: 'feature/login', base: 'main' });
    expect(await list()).toEqual([{ ...made, replayed: undefined }].map(({ replayed: _, ...shown }) => shown));
    expect(await list(id)).toHaveLength(1);
    const { projectJson } = await harness.sessions.getProject({ projectId: id }, { principal: ada });
    expect(JSON.parse(projectJson)).toMatchObject({ project_id: id, is_worktree: true, branch: 'feature/login' });
    const { projectsJson } = await harness.sessions.listProjects({}, { principal: ada });
    expect(projectsJson.map((json) => JSON.parse(json) as object)).toContainEqual(
      expect.objectContaining({
        project_id: id,
        is_worktree: true,
        parent_project_id: project,
        branch: 'feature/login',
      }),
    );
  });

  it('is one for each branch: a repeat finds it, another branch of the same folder is refused', async () => {
    const { project_id: id } = await create('a/b');
    expect(await create('a/b')).toMatchObject({ project_id: id, replayed: true });
    await expect(create('a-b')).rejects.toMatchObject({ reason: 'worktree_exists', httpStatus: 409 });
  });

  it('is refused where the branch is checked out, and leaves nothing behind', async () => {
    await expect(create('main')).rejects.toMatchObject({ reason: 'branch_in_use', httpStatus: 409 });
    expect(await list()).toEqual([]);
    for (const branch of ['', '-x', 'a..b']) await expect(create(branch)).rejects.toMatchObject({ httpStatus: 400 });
    await expect(create('x', { named: 'nope' })).rejects.toMatchObject({ reason: 'project_not_found' });
  });

  it('is found by its tenant only', async () => {
    const { project_id: id } = await create('mine');
    await expect(harness.sessions.getProject({ projectId: id ?? '' }, { principal: foreign })).rejects.toMatchObject({ reason: 'project_not_found' }); // prettier-ignore
    await expect(list(project, foreign)).rejects.toMatchObject({ reason: 'project_not_found' });
    await expect(remove(id ?? '', { principal: foreign })).rejects.toMatchObject({ reason: 'project_not_found' });
    await expect(create('x', { principal: foreign })).rejects.toMatchObject({ reason: 'project_not_found' });
    const elsewhere = await create('mine', { named: 'shop', principal: foreign });
    expect(elsewhere).toMatchObject({ project_id: 'wt:shop:mine', path: '/tmp/.margay/worktrees/mine' });
    await expect(harness.createSession(ada, { project: 'wt:shop:mine' })).resolves.toBeDefined();
    expect((await harness.sessions.listProjects({}, { principal: ada })).projectsJson.join()).not.toContain('wt:shop');
  });

  it('made by hand is shown and never touched', async () => {
    git.worktrees = [{ slug: '', path: '/workspace/../by-hand', branch: 'old', head: 'h', clean: false }];
    expect(await list()).toMatchObject([{ project_id: null, managed: false, branch: 'old', name: 'old' }]);
    await expect(remove('wt:shop:old')).rejects.toMatchObject({ reason: 'foreign_worktree', httpStatus: 400 });
    expect(await remove(`wt:${project}:old`)).toEqual({ alreadyAbsent: true });
  });

  it('with changes goes by force only; what is gone is gone', async () => {
    const { project_id: id = '' } = await create('work');
    git.dirty.add('work');
    await expect(remove(id ?? '')).rejects.toMatchObject({ reason: 'worktree_dirty', httpStatus: 409 });
    expect(names(await list())).toEqual(['work']);
    expect(await remove(id ?? '', { force: true })).toEqual({ alreadyAbsent: false });
    expect(await remove(id ?? '')).toEqual({ alreadyAbsent: true });
    expect(await list()).toEqual([]);
  });

  it('is where its sessions work, and stays while a run is active there', async () => {
    const runner = new ScriptedRunner(harness.runners, 'runner-of-worktrees', harness.pool);
    const { project_id: id } = await create('busy');
    const sessionId = await sessionIn(id ?? '');
    const { grant } = await runner.assignOf(sessionId);
    expect(JSON.parse(Buffer.from(grant.split('.')[1] ?? '', 'base64url').toString())).toMatchObject({
      workspace: { kind: 'worktree', of: { kind: 'project', projectId: project }, slug: 'busy' },
    });
    // As a row says that is behind its log.
    const rows = (await harness.db()).collection<{ _id: string }>('sessions');
    await until(async () => (await rows.countDocuments({ _id: sessionId, isRunning: true })) === 1);
    await rows.updateOne({ _id: sessionId }, { $set: { isRunning: false } });
    await expect(remove(id ?? '')).rejects.toMatchObject({ reason: 'worktree_busy', httpStatus: 409 });
    runner.detach();
    const [first] = await harness
      .events(sessionId, ada)
      .then((events) => events.filter(({ type }) => type === 'context'));
    expect(first?.payload).toMatchObject({ project: id, branch: 'busy' });
    await cancel(sessionId);
    await remove(id ?? '');
    await expect(harness.accept(sessionId, 'again', '', ada)).rejects.toMatchObject({ reason: 'unknown_project' });
  });
});

describe('the end of the last session in a worktree', () => {
  it('removes it if nothing would be lost, and its branch if Margay named it', async () => {
    const { project_id: id } = await create('margay/shop-0a1b2c', { base: 'main' });
    const sessions = [await sessionIn(id ?? ''), await sessionIn(id ?? '')];
    await terminate(sessions[0] ?? '');
    await new Promise((resolve) => setTimeout(resolve, 300));
    expect(names(await list())).toEqual(['margay/shop-0a1b2c']);
    await terminate(sessions[1] ?? '');
    await until(async () => (await list()).length === 0);
    expect(git.removed.at(-1)).toMatchObject({ slug: 'margay-shop-0a1b2c', force: false, deleteBranch: true });
  });

  it('leaves one with changes, and its branch', async () => {
    const { project_id: id } = await create('precious');
    git.dirty.add('precious');
    const asked = git.removed.length;
    await terminate(await sessionIn(id ?? ''));
    await until(() => git.removed.length > asked);
    expect(git.removed.at(-1)).toMatchObject({ deleteBranch: false });
    await until(async () => names(await list()).length === 1);
  });
});

describe('a worktree that broke off', () => {
  it('is gone on with by whoever asks again', async () => {
    git.isAway = true;
    await expect(create('late')).rejects.toMatchObject({ reason: 'workspace_starting', httpStatus: 503 });
    expect(await list()).toEqual([]);
    git.isAway = false;
    expect(await create('late')).toMatchObject({ branch: 'late', replayed: false });
    expect(names(await list())).toEqual(['late']);
  });
});

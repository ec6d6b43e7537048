import { sessionsPb, type ManagedProject, type Principal } from '@margay/contracts';
import { ScriptedRunner } from '../spec/scripted-runner';
import { principalOf, SessionHarness } from '../spec/session-harness';
import { ProjectWorkspaces } from '../workspaces/project-workspaces';
import { retirementSweep } from '../workspaces/retirement-sweep';
import { ManagedProjectRepository } from './managed-project.repository';

const harness = new SessionHarness();
const ada = principalOf('default', 'user:ada', 'member');
const bob = principalOf('default', 'user:bob', 'member');
const admin = principalOf('default', 'user:eve', 'admin');
const foreign = principalOf('elsewhere', 'user:ada', 'owner');

beforeAll(
  () => harness.start({ MARGAY_PROJECTS: JSON.stringify({ shop: { path: '/tmp' }, old: { path: '/missing' } }) }),
  600_000,
);
afterAll(() => harness.stop());

async function create(fields: Partial<sessionsPb.CreateProjectRequest> = {}, principal = ada): Promise<ManagedProject> {
  const request = sessionsPb.CreateProjectRequest.fromPartial({ name: 'Shop', ...fields });
  return parsed(await harness.sessions.createProject(request, { principal }));
}

const parsed = ({ projectJson }: { projectJson: string }) => JSON.parse(projectJson) as ManagedProject;
const get = async (projectId: string, principal = ada) =>
  parsed(await harness.sessions.getProject({ projectId }, { principal }));
const remove = (projectId: string, principal = ada) => harness.sessions.deleteProject({ projectId }, { principal });

async function listed(principal: Principal = ada) {
  const { projectsJson } = await harness.sessions.listProjects({}, { principal });
  return projectsJson.map((json) => JSON.parse(json) as { name: string; source: string; project_id?: string });
}

async function sessionIn(project: string, principal = ada): Promise<string> {
  const request = sessionsPb.CreateSessionRequest.fromPartial({ project });
  return (await harness.sessions.createSession(request, { principal })).sessionId;
}

const accept = (sessionId: string, project = '', principal = ada) =>
  harness.sessions.acceptRun(sessionsPb.AcceptRunRequest.fromPartial({ sessionId, text: 'go', project }), {
    principal,
  });

describe('a managed project', () => {
  it('is made, found, listed after those of the configuration, and changed', async () => {
    const made = await create({ name: ' Shop ', description: 'a web shop' });
    expect(made).toMatchObject({ name: 'Shop', description: 'a web shop', path: '/workspace', path_source: 'auto' });
    expect(await get(made.project_id)).toEqual(made);
    const projects = await listed();
    expect(projects[0]).toMatchObject({ name: 'shop', source: 'config' });
    expect(projects).toContainEqual(
      expect.objectContaining({ project_id: made.project_id, source: 'managed', available: true, is_worktree: false }),
    );
    const request = { projectId: made.project_id, name: 'Store', description: undefined };
    const changed = parsed(await harness.sessions.updateProject(request, { principal: ada }));
    expect(changed).toMatchObject({ name: 'Store', description: 'a web shop', created_at: made.created_at });
  });

  it('is one for each Idempotency-Key', async () => {
    const made = await create({ name: 'Once', idempotencyKey: 'k' });
    expect(await create({ name: 'Once', idempotencyKey: 'k' })).toEqual(made);
    await expect(create({ name: 'Twice', idempotencyKey: 'k' })).rejects.toMatchObject({ code: 'ALREADY_EXISTS' });
  });

  it.each([
    ['bad_request', { name: '  ' }],
    ['bad_request', { name: 'a\nb' }],
    ['bad_request', { name: 'x'.repeat(129) }],
    ['bad_request', { contentKind: 'zip' }],
    ['external_path_refused', { path: '/srv/shop' }],
    ['bad_request', { contentKind: 'clone' }],
    ['bad_request', { contentJson: '{"kind":"clone","url":"http://git.example.com/a"}' }],
    ['bad_request', { contentJson: '{"kind":"clone","url":"https://ada:secret@git.example.com/a"}' }],
    ['bad_request', { contentJson: '{"kind":"clone","url":"file:///etc"}' }],
    ['bad_request', { contentJson: '{"kind":"clone","url":"https://git.example.com/a","ref":"--upload-pack=x"}' }],
    ['unknown_template', { contentJson: '{"kind":"template","name":"unknown"}' }],
  ])('is refused as %s: %j', async (reason, fields) => {
    await expect(create(fields)).rejects.toMatchObject({ reason });
  });

  it('says what its workspace begins with before there is a project, and shows the id of the workspace', async () => {
    const content = { kind: 'clone', url: 'https://git.example.com/shop', depth: 1 };
    const made = await create({ contentJson: JSON.stringify(content), idempotencyKey: 'cloned' });
    const { sourceJson = '', ...declared } = harness.workspaces.declared.at(-1) ?? {};
    expect(declared).toEqual({ projectId: made.project_id, owner: 'user:ada' });
    expect(JSON.parse(sourceJson)).toEqual({ ...content, submodules: false, lfs: false });
    expect(made.workspace_id).toBe(`w${made.project_id.slice(1)}`);
    const count = harness.workspaces.declared.length;
    expect(await create({ contentJson: JSON.stringify(content), idempotencyKey: 'cloned' })).toEqual(made);
    expect(harness.workspaces.declared).toHaveLength(count);
    await expect(create({ idempotencyKey: 'cloned' })).rejects.toMatchObject({ reason: 'idempotency_key_reused' });
    await create();
    expect(harness.workspaces.declared.at(-1)?.sourceJson).toBe('{"kind":"empty"}');
  });

  it('is not made while its workspace cannot be, and begins empty where nobody keeps records of workspaces', async () => {
    const { workspaces } = harness;
    const clone = { contentJson: '{"kind":"clone","url":"https://git.example.com/a"}' };
    const before = (await listed()).length;
    workspaces.isUp = false;
    await expect(create()).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    workspaces.isUp = true;
    workspaces.keepsRecords = false;
    await expect(create(clone)).rejects.toMatchObject({ reason: 'content_unavailable' });
    expect((await listed()).length).toBe(before);
    expect((await create()).workspace_id).toBeUndefined();
    workspaces.keepsRecords = true;
  });

  it('tells its workspace of its end, later if that fails', async () => {
    const { workspaces } = harness;
    const [first, second] = [await create(), await create()];
    await remove(first.project_id);
    expect(workspaces.retired).toEqual([`default/${first.project_id}`]);
    workspaces.isUp = false;
    await remove(second.project_id);
    workspaces.isUp = true;
    const rows = new ManagedProjectRepository((await harness.db()).collection('projects'));
    const client = {
      declare: jest.fn(),
      retire: async ({ projectId }: { projectId: string }) => void workspaces.retired.push(projectId),
    };
    const sweep = retirementSweep({ projects: rows, workspaces: new ProjectWorkspaces(client as never) });
    expect(await sweep.sweep()).toBe(1);
    expect(workspaces.retired.at(-1)).toBe(second.project_id);
    expect(await sweep.sweep()).toBe(0);
  });

  it('belongs to its tenant, and is changed by who made it and by administrators', async () => {
    const { project_id: id } = await create();
    await expect(get(id, foreign)).rejects.toMatchObject({ reason: 'project_not_found' });
    expect((await listed(foreign)).some(({ project_id }) => project_id === id)).toBe(false);
    await expect(remove(id, bob)).rejects.toMatchObject({ reason: 'permission_denied' });
    await expect(remove(id, foreign)).rejects.toMatchObject({ reason: 'project_not_found' });
    await remove(id, admin);
    for (const gone of [() => get(id), () => remove(id)])
      await expect(gone()).rejects.toMatchObject({ reason: 'project_not_found' });
  });

  it('is the workspace that its sessions share, by id in both forms, whoever of the tenant starts them', async () => {
    const { project_id: id } = await create();
    const runner = new ScriptedRunner(harness.runners, 'runner-of-projects', harness.pool);
    const sessions = [await sessionIn(id), await sessionIn(`managed:${id}`, bob), await sessionIn('')];
    await accept(sessions[0] ?? '');
    await accept(sessions[1] ?? '', '', bob);
    await accept(sessions[2] ?? '', id);
    for (const sessionId of sessions) {
      const { grant } = await runner.assignOf(sessionId);
      const payload = JSON.parse(Buffer.from(grant.split('.')[1] ?? '', 'base64url').toString()) as Record<
        string,
        unknown
      >;
      expect(JSON.stringify(payload)).toContain(JSON.stringify({ kind: 'project', projectId: id }));
    }
    runner.detach();
    await harness.sessions.listFiles({ sessionId: '', project: id, query: '', limit: 1 }, { principal: ada });
    expect(harness.listed.at(-1)?.workspaceJson).toBe(JSON.stringify({ kind: 'project', projectId: id }));
  });

  it('is known by any form of its name in lists of sessions', async () => {
    const { project_id: id, name } = await create({ name: 'Listed' });
    const sessionId = await sessionIn(id);
    await accept(sessionId);
    const listed = async (project: string) => {
      const request = sessionsPb.ListSessionsRequest.fromPartial({ projects: [project] });
      const { summariesJson } = await harness.sessions.listSessions(request, { principal: ada });
      return summariesJson.map((json) => (JSON.parse(json) as { session_id: string }).session_id);
    };
    // Rows follow what is accepted.
    while ((await listed(id)).length === 0) await new Promise((resolve) => setTimeout(resolve, 20));
    for (const project of [id, `managed:${id}`, name]) expect(await listed(project)).toEqual([sessionId]);
  });

  it('tells its branches, or why it has none, also of projects of the configuration', async () => {
    const { project_id: id } = await create();
    const branches = (project: string, principal = ada) => harness.sessions.listBranches({ project }, { principal });
    expect(await branches(`managed:${id}`)).toMatchObject({ isGit: true, branches: ['main'], reason: '' });
    expect(await branches('shop')).toMatchObject({ isGit: false, reason: 'not_git' });
    expect(await branches('old')).toMatchObject({ isGit: false, branches: [], reason: 'missing_path' });
    await expect(branches('nope')).rejects.toMatchObject({ reason: 'project_not_found' });
    await expect(branches(id, foreign)).rejects.toMatchObject({ reason: 'project_not_found' });
  });

  it('takes no run once it is deleted, nor of another tenant', async () => {
    const { project_id: id } = await create();
    const [bound, other] = [await sessionIn(id), await sessionIn('', foreign)];
    await remove(id);
    await expect(accept(bound)).rejects.toMatchObject({ reason: 'unknown_project' });
    const { project_id: living } = await create();
    await expect(accept(other, living, foreign)).rejects.toMatchObject({ reason: 'unknown_project' });
  });
});

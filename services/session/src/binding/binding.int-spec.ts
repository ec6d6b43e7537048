import { sessionsPb } from '@margay/contracts';
import type { SpecAnswer } from './session-spec';
import { ScriptedRunner } from '../spec/scripted-runner';
import { principalOf, SessionHarness } from '../spec/session-harness';

const harness = new SessionHarness();
const ada = principalOf('default', 'user:ada', 'member');
const viewer = principalOf('default', 'user:ada', 'viewer');
const bob = principalOf('default', 'user:bob', 'member');
const foreign = principalOf('elsewhere', 'user:ada', 'owner');
const folders = { shop: { path: '/tmp' }, lab: { path: '/usr' } };

beforeAll(() => harness.start({ MARGAY_PROJECTS: JSON.stringify(folders) }), 600_000);
afterAll(() => harness.stop());

const parsed = ({ specJson }: { specJson: string }) => JSON.parse(specJson) as SpecAnswer;
const spec = async (sessionId: string, principal = ada) =>
  parsed(await harness.sessions.getSpec({ sessionId }, { principal }));
const bind = (sessionId: string, project: string, principal = ada, idempotencyKey = '') =>
  harness.sessions.bindProject({ sessionId, project, idempotencyKey }, { principal });

async function until(isTrue: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await isTrue())) await new Promise((resolve) => setTimeout(resolve, 10));
}

async function workspaceOf(runner: ScriptedRunner, sessionId: string): Promise<unknown> {
  const { grant } = await runner.assignOf(sessionId);
  return JSON.parse(Buffer.from(grant.split('.')[1] ?? '', 'base64url').toString());
}

async function ended(sessionId: string): Promise<void> {
  await harness.sessions.cancelRun({ sessionId, idempotencyKey: '' }, { principal: ada });
}

describe('what a session is', () => {
  it('is told with what its next run starts with', async () => {
    const context = { mcp_tools: ['mcp__a__b'], fallback_models: ['m2'], mode: 'plan', model: 'm1' };
    const sessionId = await harness.createSession(ada, {
      project: 'shop',
      contextJson: JSON.stringify(context),
      capabilities: ['ask_user'],
      hasCapabilities: true,
      surface: 'console',
    });
    expect(await spec(sessionId)).toEqual({
      session_id: sessionId,
      spec: {
        origin: 'user',
        surface: 'console',
        purpose_bound: false,
        project: 'shop',
        slug: 'shop',
        cwd: null,
        model: 'm1',
        fallback_models: ['m2'],
        allowed_tools: ['mcp__a__b'],
        strict_tool_scope: false,
        capabilities: ['ask_user'],
        skill_instructions_present: false,
        session_step_budget: null,
        mode: 'plan',
        sandbox_class: 'default',
      },
      editable: {
        model: true,
        project: true,
        mode: true,
        fallback_models: true,
        capabilities: true,
        sandbox_class: true,
        cwd: false,
      },
      source: 'spec',
    });
  });

  it('is told to those who may see it', async () => {
    const sessionId = await harness.createSession(ada);
    expect((await spec(sessionId)).spec).toMatchObject({ project: null, slug: null, model: 'spec-model', mode: 'act' });
    for (const principal of [bob, foreign]) {
      await expect(spec(sessionId, principal)).rejects.toMatchObject({ reason: 'session_not_found' });
      await expect(bind(sessionId, 'shop', principal)).rejects.toMatchObject({ reason: 'session_not_found' });
    }
    await expect(bind(sessionId, 'shop', viewer)).rejects.toMatchObject({ reason: 'permission_denied' });
  });
});

describe('binding a session to another project', () => {
  it('appends a context, shows in lists, and ends the sandbox of the one before', async () => {
    const sessionId = await harness.createSession(ada, { project: 'shop' });
    await harness.accept(sessionId, 'one', '', ada);
    await ended(sessionId);
    expect(parsed(await bind(sessionId, 'lab')).spec).toMatchObject({ project: 'lab', cwd: null });
    const events = await harness.events(sessionId, ada);
    expect(events.at(-1)).toMatchObject({ type: 'context', payload: { project: 'lab' } });
    await until(() => harness.left.some((left) => left.sessionId === sessionId));
    const shown = async (project: string) => {
      const request = sessionsPb.ListSessionsRequest.fromPartial({ projects: [project], limit: 100 });
      const { summariesJson } = await harness.sessions.listSessions(request, { principal: ada });
      const rows = summariesJson.map((json) => JSON.parse(json) as { session_id: string; projects: string[] });
      return rows.find((row) => row.session_id === sessionId)?.projects.join();
    };
    // Rows follow the log.
    for (const project of ['shop', 'lab']) await until(async () => (await shown(project)) === 'shop,lab');
  });

  it('leaves a run where it works, also with another runner; the next one works in the new place', async () => {
    const runner = new ScriptedRunner(harness.runners, 'runner-of-bindings', harness.pool);
    const sessionId = await harness.createSession(ada, { project: 'shop' });
    await harness.accept(sessionId, 'one', '', ada);
    expect(await workspaceOf(runner, sessionId)).toMatchObject({ workspace: { kind: 'path', path: '/tmp' } });
    await bind(sessionId, 'lab');
    expect(harness.left.filter((left) => left.sessionId === sessionId)).toEqual([]);
    await harness.sessions.listFiles({ sessionId, project: '', query: '', limit: 1 }, { principal: ada });
    expect(harness.listed.at(-1)?.workspaceJson).toContain('/tmp');
    await ended(sessionId);
    await until(() => harness.left.some((left) => left.sessionId === sessionId));
    await harness.accept(sessionId, 'two', '', ada);
    expect(await workspaceOf(runner, sessionId)).toMatchObject({ workspace: { kind: 'path', path: '/usr' } });
    runner.detach();
    await ended(sessionId);
  });

  it('is refused for projects that are not there, for nothing, and once the session is over', async () => {
    const sessionId = await harness.createSession(ada, { project: 'shop' });
    await expect(bind(sessionId, 'nope')).rejects.toMatchObject({ reason: 'unknown_project', httpStatus: 400 });
    await expect(bind(sessionId, '')).rejects.toMatchObject({ reason: 'bad_request' });
    expect(parsed(await bind(sessionId, 'auto')).spec.project).toBeNull();
    await harness.sessions.terminateSession({ sessionId }, { principal: ada });
    await expect(bind(sessionId, 'nope')).rejects.toMatchObject({ reason: 'session_terminated', httpStatus: 410 });
    expect((await spec(sessionId)).editable).toMatchObject({ project: false });
  });

  it('is done once for each Idempotency-Key', async () => {
    const sessionId = await harness.createSession(ada, { project: 'shop' });
    expect((await bind(sessionId, 'lab', ada, 'k')).replayed).toBe(false);
    const before = (await harness.state(sessionId)).c;
    expect((await bind(sessionId, 'lab', ada, 'k')).replayed).toBe(true);
    expect((await harness.state(sessionId)).c).toBe(before);
    await expect(bind(sessionId, 'shop', ada, 'k')).rejects.toMatchObject({ reason: 'idempotency_key_reused' });
  });
});

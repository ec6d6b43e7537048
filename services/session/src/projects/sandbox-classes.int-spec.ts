import { sessionsPb, type RunGrant, type Tenant } from '@margay/contracts';
import type { SpecAnswer } from '../binding/session-spec';
import { ScriptedRunner } from '../spec/scripted-runner';
import { principalOf, SessionHarness } from '../spec/session-harness';

const harness = new SessionHarness();
let runner: ScriptedRunner;
let runners = 0;
const ada = principalOf('default', 'user:ada', 'member');
const operator = principalOf('default', 'platform:operator', 'operator');

const folders = { shop: { path: '/tmp' }, lab: { path: '/usr', sandboxClass: 'strict' } };

beforeAll(
  // Its runners beat once: however long a test takes, none is lost.
  () => harness.start({ MARGAY_PROJECTS: JSON.stringify(folders), MARGAY_RUNNER_LOST_SECONDS: '3600' }),
  600_000,
);
afterAll(() => harness.stop());
beforeEach(() => {
  runner = new ScriptedRunner(harness.runners, `runner-of-classes-${(runners += 1)}`, harness.pool);
});
afterEach(async () => {
  runner.detach();
  await change({ sandbox_class: null, ceilings: { allowed_classes: null } });
});

async function change(change: object, principal = operator): Promise<Tenant> {
  const request = { tenant: 'default', changeJson: JSON.stringify(change) };
  const { tenantJson } = await harness.access.changeTenant(request, { principal });
  return JSON.parse(tenantJson) as Tenant;
}

const create = (context: object = {}, project = '') =>
  harness.createSession(ada, { project, contextJson: JSON.stringify(context) });
const accept = (sessionId: string, fields: Partial<sessionsPb.AcceptRunRequest> = {}) =>
  harness.sessions.acceptRun(sessionsPb.AcceptRunRequest.fromPartial({ sessionId, text: 'go', ...fields }), {
    principal: ada,
  });
const cancel = (sessionId: string) => harness.sessions.cancelRun({ sessionId, idempotencyKey: '' }, { principal: ada });
const specClass = async (sessionId: string) => {
  const { specJson } = await harness.sessions.getSpec({ sessionId }, { principal: ada });
  return (JSON.parse(specJson) as SpecAnswer).spec.sandbox_class;
};

const classIn = (grant: string): unknown =>
  (JSON.parse(Buffer.from(grant.split('.')[1] ?? '', 'base64url').toString()) as RunGrant).sandboxClass;
const grantedClass = async (sessionId: string) => classIn((await runner.assignOf(sessionId)).grant);

describe('the class of sandboxes of a session', () => {
  it('is in the grant of its run, as the session, its project or the tenant chose it', async () => {
    await change({ sandbox_class: 'dense' });
    const chosen: [string, unknown][] = [
      [await create({ sandbox_class: 'default' }, 'lab'), undefined],
      [await create({}, 'lab'), 'strict'],
      [await create(), 'dense'],
    ];
    for (const [sessionId, expected] of chosen) {
      expect(await specClass(sessionId)).toBe(expected ?? 'default');
      await accept(sessionId);
      expect(await grantedClass(sessionId)).toBe(expected);
      await cancel(sessionId);
    }
  });

  it('stays that of the acceptance for a run, wherever the session is bound and whatever the tenant is allowed meanwhile', async () => {
    const sessionId = await create({ sandbox_class: 'dense' });
    await accept(sessionId);
    const { runId, epoch, grant } = await runner.assignOf(sessionId);
    expect(classIn(grant)).toBe('dense');
    await harness.sessions.bindProject({ sessionId, project: 'lab', idempotencyKey: '' }, { principal: ada });
    await change({ ceilings: { allowed_classes: ['strict'] } });
    runner.heartbeat([{ sessionId, runId, epoch }]);
    expect(classIn(await runner.grantOf({ sessionId, runId, epoch }))).toBe('dense');
    await cancel(sessionId);
    await expect(accept(sessionId)).rejects.toMatchObject({ reason: 'sandbox_class_not_allowed' });
    await accept(sessionId, { contextJson: JSON.stringify({ sandbox_class: 'strict' }) });
    expect(await grantedClass(sessionId)).toBe('strict');
    await cancel(sessionId);
  });

  it('is no matter to messages to the run that has it: only the next run is refused', async () => {
    const sessionId = await create({ sandbox_class: 'dense' });
    await accept(sessionId);
    await runner.assignOf(sessionId);
    await change({ ceilings: { allowed_classes: ['strict'] } });
    const say = () => harness.sessions.sendMessage(sessionsPb.SendMessageRequest.fromPartial({ sessionId, text: 'and this' }), { principal: ada }); // prettier-ignore
    await say();
    await cancel(sessionId);
    await expect(say()).rejects.toMatchObject({ reason: 'sandbox_class_not_allowed' });
  });

  it('that there is not, or that the tenant is not allowed, is refused when it is named', async () => {
    await expect(create({ sandbox_class: 'huge' })).rejects.toMatchObject({ reason: 'sandbox_class_unknown' });
    await change({ ceilings: { allowed_classes: ['dense'] } });
    await expect(create({ sandbox_class: 'strict' })).rejects.toMatchObject({ reason: 'sandbox_class_not_allowed' });
    const request = sessionsPb.CreateProjectRequest.fromPartial({ name: 'Shop', sandboxClass: 'strict' });
    await expect(harness.sessions.createProject(request, { principal: ada })).rejects.toMatchObject({
      reason: 'sandbox_class_not_allowed',
    });
  });

  it('that tool-executor has begun to offer can be named at once', async () => {
    await expect(create({ sandbox_class: 'new' })).rejects.toMatchObject({ reason: 'sandbox_class_unknown' });
    harness.sandboxClasses = [...harness.sandboxClasses, 'new'];
    expect(await specClass(await create({ sandbox_class: 'new' }))).toBe('new');
  });
});

describe('the class of sandboxes of a managed project', () => {
  it('is that of its sessions until it is taken back', async () => {
    const request = sessionsPb.CreateProjectRequest.fromPartial({ name: 'Shop', sandboxClass: 'dense' });
    const made = await harness.sessions.createProject(request, { principal: ada });
    const project = JSON.parse(made.projectJson) as { project_id: string; sandbox_class?: string };
    expect(project.sandbox_class).toBe('dense');
    const sessionId = await create({}, project.project_id);
    expect(await specClass(sessionId)).toBe('dense');
    const back = { projectId: project.project_id, name: undefined, description: undefined, sandboxClass: '' };
    const { projectJson } = await harness.sessions.updateProject(back, { principal: ada });
    expect(JSON.parse(projectJson)).not.toHaveProperty('sandbox_class');
    expect(await specClass(sessionId)).toBe('default');
  });
});

describe('a tenant', () => {
  it('is shown to its people and changed by the operator alone', async () => {
    const changed = await change({ weight: 20, sandbox_class: 'dense', ceilings: { allowed_classes: ['dense'] } });
    expect(changed).toMatchObject({ weight: 20, sandbox_class: 'dense', ceilings: { allowed_classes: ['dense'] } });
    const seen = await harness.access.getTenant({ tenant: 'default' }, { principal: ada });
    expect(JSON.parse(seen.tenantJson)).toEqual(changed);
    expect((await change({ weight: null })).weight).toBeNull();
    const foreign = principalOf('elsewhere', 'user:ada', 'owner');
    await expect(harness.access.getTenant({ tenant: 'default' }, { principal: foreign })).rejects.toMatchObject({
      reason: 'tenant_not_found',
    });
    await expect(change({ weight: 3 }, ada)).rejects.toMatchObject({ reason: 'platform_operator_only' });
    await expect(change({ sandbox_class: 'huge' })).rejects.toMatchObject({ reason: 'sandbox_class_unknown' });
  });
});

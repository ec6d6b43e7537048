import { spawnSync } from 'node:child_process';
import type { Session } from '@margay/client';
import type { SessionSpec, Tenant } from '@margay/contracts';
import { answer, byConversation, callTools } from '@margay/testing';
import { PlatformHarness } from './harness';

jest.setTimeout(120_000);

const MASTER_TOKEN = 'an-operator-of-end-to-end-tests';
/** Open files: what commands of either class may have tells which one it is. */
const [USUAL, STRICT] = ['1024', '256'];

/** With the driver `process`, as root with bubblewrap, there are `default` and `strict`. */
const hasSandboxes =
  process.getuid?.() === 0 && spawnSync('bwrap', ['--unshare-all', '--ro-bind', '/', '/', 'true']).status === 0;
const suite = hasSandboxes ? describe : describe.skip;

suite(`the class of sandboxes${hasSandboxes ? '' : ' (skipped: needs root and bubblewrap)'}`, () => {
  const margay = new PlatformHarness({ mode: 'combined', env: { MARGAY_MASTER_TOKEN: MASTER_TOKEN } });

  beforeAll(() => margay.start(), 600_000);
  afterAll(() => margay.stop(), 60_000);
  beforeEach(() => {
    margay.script(
      byConversation(({ results, user }) =>
        results.length > 0
          ? answer(`${results.at(-1)?.content}`)
          : callTools({ name: 'aider_shell_tool', arguments: { command: user } }),
      ),
    );
  });
  afterEach(() => change({ sandbox_class: null, ceilings: { allowed_classes: null } }));

  async function change(body: object): Promise<Tenant> {
    const headers = { 'x-api-key': MASTER_TOKEN };
    const answered = await margay.request('PATCH', '/api/tenants/default', body, headers);
    expect(answered).toMatchObject({ status: 200 });
    return answered.body as Tenant;
  }

  const limitIn = async (session: Session): Promise<string> =>
    (await (await session.query('echo "limit $(ulimit -n)"')).result()).text?.match(/limit (\d+)/)?.[1] ?? '';
  const specOf = async ({ id }: Session) =>
    ((await margay.request('GET', `/api/sessions/${id}/spec`)).body as { spec: SessionSpec }).spec;

  it('is what the session, its project or the tenant chose', async () => {
    const made = await margay.request('POST', '/api/v_projects', { name: 'Lab', sandbox_class: 'strict' });
    const { project_id: project, sandbox_class: ofProject } = made.body as Record<string, string>;
    expect([made.status, ofProject]).toEqual([201, 'strict']);
    expect(await limitIn(await margay.client.sessions.create())).toBe(USUAL);
    expect(await limitIn(await margay.client.sessions.create({ sandboxClass: 'strict' }))).toBe(STRICT);
    const inProject = await margay.client.sessions.create({ project: project ?? '' });
    expect((await specOf(inProject)).sandbox_class).toBe('strict');
    expect(await limitIn(inProject)).toBe(STRICT);
    expect((await change({ sandbox_class: 'strict' })).sandbox_class).toBe('strict');
    expect(await limitIn(await margay.client.sessions.create())).toBe(STRICT);
    const { body } = await margay.request('GET', '/api/sandboxes');
    const { sandboxes } = body as { sandboxes: { session_id: string; class: string }[] };
    expect(sandboxes.find((sandbox) => sandbox.session_id === inProject.id)).toMatchObject({ class: 'strict' });
  });

  it('is another one from the next run on, where the session says so; its files stay', async () => {
    const session = await margay.client.sessions.create();
    await (await session.query('echo kept > file')).result();
    const run = await session.query('cat file; ulimit -n', { context: { sandbox_class: 'strict' } });
    expect((await run.result()).text).toMatch(/kept[^]*256/);
  });

  it('is one that there is and that the tenant is allowed, else nothing is made', async () => {
    const create = (sandboxClass: string) => margay.request('POST', '/api/sessions', { sandbox_class: sandboxClass });
    const unknown = await create('huge');
    expect([unknown.status, JSON.stringify(unknown.body)]).toEqual([400, expect.stringContaining('default, strict')]);
    const session = await margay.client.sessions.create();
    await change({ ceilings: { allowed_classes: ['strict'] } });
    expect((await create('default')).status).toBe(403);
    await expect(session.query('true')).rejects.toMatchObject({ code: 'PERMISSION_DENIED' });
    await change({ sandbox_class: 'strict' });
    expect(await limitIn(session)).toBe(STRICT);
    const owner = await margay.request('PATCH', '/api/tenants/default', { sandbox_class: null });
    expect(owner.status).toBe(403);
    const shown = await margay.request('GET', '/api/tenants/default', undefined, { 'x-api-key': MASTER_TOKEN });
    expect(shown.body).toMatchObject({ sandbox_class: 'strict', ceilings: { allowed_classes: ['strict'] } });
  });
});

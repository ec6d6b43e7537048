import { setTimeout as delay } from 'node:timers/promises';
import type { Session } from '@margay/client';
import { answer, byConversation, callTools } from '@margay/testing';
import { PlatformHarness } from './harness';

jest.setTimeout(180_000);

const COMMIT = 'git -c user.name=a -c user.email=a@example.org commit -q';
const REPOSITORY = `git init -q -b main . && git add . && ${COMMIT} --allow-empty -m first`;

describe('projects', () => {
  const margay = new PlatformHarness({ mode: 'combined' });

  beforeAll(() => margay.start(), 600_000);
  afterAll(() => margay.stop());

  beforeEach(() => {
    margay.script(
      byConversation(({ results, user }) =>
        results.length > 0
          ? answer(`${results.at(-1)?.content}`)
          : callTools({ name: 'aider_shell_tool', arguments: { command: user } }),
      ),
    );
  });

  async function project(name: string, command = REPOSITORY): Promise<{ id: string; session: Session }> {
    const made = await margay.request('POST', '/api/v_projects', { name });
    const { project_id: id } = made.body as { project_id: string };
    const session = await margay.client.sessions.create({ project: id });
    await run(session, command);
    return { id, session };
  }

  const run = async (session: Session, command: string): Promise<string> =>
    (await (await session.query(command)).result()).text ?? '';

  async function until<T>(look: () => Promise<T>, isRight: (found: T) => boolean): Promise<T> {
    for (let left = 500; ; left -= 1) {
      const found = await look();
      if (isRight(found) || left === 0) return found;
      await delay(100);
    }
  }

  it('have worktrees in which sessions work beside each other, each with a branch of its own', async () => {
    const { id, session } = await project('Shop');
    const made = await margay.client.createWorktree(id, { branch: 'feature/login', base: 'main' });
    expect(made).toMatchObject({ project_id: `wt:${id}:feature-login`, managed: true, clean: true });
    const beside = await margay.client.sessions.create({ project: made.project_id ?? '' });
    expect(await run(beside, 'git branch --show-current; pwd')).toContain('feature/login');
    await run(beside, `echo new > login.txt && git add . && ${COMMIT} -m second`);
    expect(await run(session, 'git log -1 --format=%s feature/login; ls; git status --short')).not.toContain(
      'login.txt',
    );
    const [shown] = await until(
      () => margay.client.worktrees(id),
      ([worktree]) => worktree?.clean === false,
    );
    expect(shown).toMatchObject({ branch: 'feature/login', clean: false });
    const { body } = await margay.request('GET', `/api/v_projects/${id}/branches`);
    expect(body).toMatchObject({ branches: ['feature/login', 'main'], branches_in_use: ['main', 'feature/login'] });
    await expect(margay.client.createWorktree(id, { branch: 'main' })).rejects.toMatchObject({
      reason: 'branch_in_use',
    });
    const removal = margay.client.deleteWorktree(id, made.project_id ?? '');
    await expect(removal).rejects.toMatchObject({ reason: 'worktree_dirty' });
    await margay.client.deleteWorktree(id, made.project_id ?? '', { force: true });
    expect(
      await until(
        () => margay.client.worktrees(id),
        ({ length }) => length === 0,
      ),
    ).toEqual([]);
    const absent = await margay.request('DELETE', `/api/v_projects/${id}/worktrees/${encodeURIComponent(made.project_id ?? '')}`); // prettier-ignore
    expect([absent.status, absent.body]).toEqual([200, { status: 'already_absent' }]);
    expect(await run(session, 'git log -1 --format=%s feature/login')).toContain('second');
  });

  it('lose a clean worktree, and the branch that Margay named, with its last session', async () => {
    const { id, session } = await project('Site');
    const { project_id: tree } = await margay.client.createWorktree(id, { branch: 'margay/site-0a1b2c', base: 'main' });
    const last = await margay.client.sessions.create({ project: tree ?? '' });
    await run(last, 'git status');
    await last.terminate();
    expect(
      await until(
        () => margay.client.worktrees(id),
        ({ length }) => length === 0,
      ),
    ).toEqual([]);
    expect(await run(session, 'git branch --list "margay/*"; ls -a .margay/worktrees')).not.toContain('site');
  });

  it('are named by their repositories, as long as that means one', async () => {
    const clone = (owner: string) => `${REPOSITORY} && git remote add origin https://git.example.org/${owner}/web.git`;
    const [first, second] = [await project('One', clone('acme')), await project('Two', clone('zoo'))];
    const list = async () =>
      ((await margay.request('GET', '/api/projects')).body as { projects: { project_id: string; repo?: object; aliases?: string[] }[] }).projects; // prettier-ignore
    const shown = await until(list, (projects) => projects.filter(({ repo }) => repo).length === 2);
    const repo = { host: 'git.example.org', owner: 'acme', name: 'web' };
    expect(shown).toContainEqual(
      expect.objectContaining({ project_id: first.id, repo, aliases: ['git.example.org/acme/web', 'acme/web'] }),
    );
    const session = await margay.client.sessions.create();
    expect((await session.bind('zoo/web')).spec).toMatchObject({ project: `managed:${second.id}` });
    const several = await margay.request('PUT', `/api/sessions/${session.id}/project`, { project: 'web' });
    expect([several.status, several.body]).toEqual([
      409,
      { message: expect.stringContaining('web'), candidates: ['acme/web', 'zoo/web'] },
    ]);
  });

  it('are changed between the runs of a session, whose next run works in the other one', async () => {
    const [first, second] = [await project('From'), await project('To')];
    await run(first.session, 'echo here > from.txt');
    await run(second.session, 'echo there > to.txt');
    const moved = await first.session.bind(second.id);
    expect(moved).toMatchObject({ session_id: first.session.id, spec: { project: `managed:${second.id}` } });
    expect(await first.session.spec()).toEqual(moved);
    const files = await run(first.session, 'ls; git branch --show-current');
    expect(files).toContain('to.txt');
    expect(files).not.toContain('from.txt');
    const events = (await margay.storedFrames(first.session.id)).map((text) => JSON.parse(text) as { type: string; payload: object }); // prettier-ignore
    expect(events).toContainEqual(expect.objectContaining({ type: 'context', payload: expect.objectContaining({ project: `managed:${second.id}` }) })); // prettier-ignore
  });
});

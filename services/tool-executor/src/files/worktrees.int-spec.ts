import { readFileSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { RunGrant } from '@margay/contracts';
import { ExecutorFixture } from '../executor-fixture';

jest.setTimeout(180_000);

const PROJECT = { kind: 'project', projectId: 'b'.repeat(32) } as const;
const inProject = { sessionId: 'p1', workspace: PROJECT };
const inTree = (slug: string, sessionId = `t-${slug}`): Partial<RunGrant> => ({
  sessionId,
  workspace: { kind: 'worktree', of: PROJECT, slug },
});
const COMMIT = 'git -c user.name=a -c user.email=a@example.org commit -q';

let fixture: ExecutorFixture;

beforeAll(async () => {
  fixture = await new ExecutorFixture().start();
  const made = await fixture.shell(`git init -q -b main . && echo one > a.txt && git add . && ${COMMIT} -m first`, inProject); // prettier-ignore
  if (made.finished?.exitCode !== 0) throw new Error(made.output);
});
afterAll(() => fixture.remove());

const workspaceJson = JSON.stringify(PROJECT);
const add = (branch: string, base = 'main') =>
  fixture.client.addWorktree({ workspaceJson, slug: branch, branch, base }, fixture.principal);
const remove = (slug: string, force = false) =>
  fixture.client.removeWorktree({ workspaceJson, slug, force, deleteBranch: false }, fixture.principal);
const list = async () => (await fixture.client.listWorktrees({ workspaceJson }, fixture.principal)).worktrees;
const folderOf = (slug: string) =>
  path.join(fixture.home, 'workspaces', `p-${PROJECT.projectId}`, '.margay/worktrees', slug);

describe('a worktree', () => {
  it('is the workspace of its own sessions, with the repository of its project', async () => {
    expect(await add('fix')).toMatchObject({ created: true, worktree: { slug: 'fix', branch: 'fix', clean: true } });
    expect((await fixture.shell('cat a.txt; git status --short --branch', inTree('fix'))).output).toBe('one\n## fix\n');
    const ran = await fixture.shell(`echo two > b.txt && git add . && ${COMMIT} -m second && pwd`, inTree('fix'));
    expect(ran.finished?.exitCode).toBe(0);
    if (fixture.isolation === 'bwrap') expect(ran.output).toBe('/workspace\n');
    expect((await fixture.shell('git log -1 --format=%s fix; git status --short; ls', inProject)).output).toBe(
      'second\nCLAUDE.md\na.txt\n',
    );
    // The list is one of two seconds ago, or older where looking takes long.
    const seen = async () => (await list()).map(({ slug, clean }) => [slug, clean].join());
    for (let left = 500; left > 0 && (await seen()).join() !== 'fix,false'; left -= 1) await delay(100);
    expect(await seen()).toEqual(['fix,false']);
    const request = { sessionId: 't-fix', workspaceJson: JSON.stringify(inTree('fix').workspace), query: '', limit: 9 };
    expect((await fixture.client.listFiles(request, fixture.principal)).files).toEqual(['CLAUDE.md', 'a.txt', 'b.txt']);
  });

  it('has a sandbox of its own for each session, on the same files', async () => {
    await add('two');
    await fixture.shell('echo x > shared', inTree('two'));
    const [first, second] = await Promise.all([
      fixture.shell('cat shared', inTree('two')),
      fixture.shell('cat shared', inTree('two', 'other')),
    ]);
    expect([first.output, second.output]).toEqual(['x\n', 'x\n']);
    expect(first.incarnation).not.toBe(second.incarnation);
  });

  it('goes when nothing would be lost with it, else by force', async () => {
    await add('gone');
    expect(await remove('gone')).toEqual({ removed: true });
    expect(await remove('gone')).toEqual({ removed: false });
    await add('kept');
    await fixture.shell('echo x > new', inTree('kept'));
    await expect(remove('kept')).rejects.toMatchObject({ reason: 'worktree_dirty', httpStatus: 409 });
    expect(await remove('kept', true)).toEqual({ removed: true });
    await expect(fixture.shell('ls', inTree('kept', 'late'))).rejects.toMatchObject({ reason: 'workspace_missing' });
  });

  it('is refused for a branch that is checked out, and in other places than repositories', async () => {
    await expect(add('main', '')).rejects.toMatchObject({ reason: 'branch_in_use', httpStatus: 409 });
    const none = JSON.stringify({ kind: 'project', projectId: 'c'.repeat(32) });
    const asked = { workspaceJson: none, slug: 'a', branch: 'a', base: 'main' };
    await expect(fixture.client.addWorktree(asked, fixture.principal)).rejects.toMatchObject({ reason: 'not_git' });
    const own = { workspaceJson: '{"kind":"own"}', slug: 'a', branch: 'a', base: '' };
    await expect(fixture.client.addWorktree(own, fixture.principal)).rejects.toMatchObject({ reason: 'bad_workspace' });
  });

  it('is never a link to somewhere else', async () => {
    await add('trap');
    const folder = folderOf('trap');
    renameSync(folder, `${folder}-real`);
    symlinkSync('/etc', folder);
    await expect(fixture.shell('ls', inTree('trap'))).rejects.toMatchObject({ reason: 'workspace_missing' });
    rmSync(folder);
    renameSync(`${folder}-real`, folder);
    expect((await fixture.shell('cat a.txt', inTree('trap'))).output).toBe('one\n');
  });

  it('is told to session only', async () => {
    const asked = fixture.client.addWorktree({ workspaceJson, slug: 'a', branch: 'a', base: 'main' }, { grant: await fixture.token() }); // prettier-ignore
    await expect(asked).rejects.toMatchObject({ reason: 'principal_missing' });
  });

  it('finds its repository by a relative path, so that its folder can be moved with the project', () => {
    expect(readFileSync(path.join(folderOf('fix'), '.git'), 'utf8')).toBe('gitdir: ../../../.git/worktrees/fix\n');
  });
});

describe('the index of a project', () => {
  it('is told by its sandbox when it changes, and kept when that sleeps', async () => {
    const remote = 'git remote add origin https://user:secret@git.example.org/acme/shop.git';
    const asked = { sessionId: '', workspaceJson, query: 'later', limit: 9 };
    const later = async () => (await fixture.client.listFiles(asked, fixture.principal)).files;
    // A look reads the files first: one that sees the remote has seen the file only if that is known before.
    await fixture.shell('touch later.txt', inProject);
    for (let left = 500; left > 0 && (await later()).length === 0; left -= 1) await delay(100);
    expect(await later()).toEqual(['later.txt']);
    await fixture.shell(remote, inProject);
    const described = async () =>
      (
        await fixture.client.describeWorkspaces(
          { workspacesJson: [workspaceJson, '{"kind":"own"}'] },
          fixture.principal,
        )
      ).workspaces;
    const known = { isKnown: true, isGit: true, currentBranch: 'main', remoteHost: 'git.example.org', remoteOwner: 'acme', remoteName: 'shop' }; // prettier-ignore
    for (let left = 1_000; left > 0 && (await described())[0]?.remoteName !== 'shop'; left -= 1) await delay(50);
    expect(await described()).toEqual([known, expect.objectContaining({ isKnown: false, isGit: false })]);
    await fixture.client.release({ sessionId: 'p1', upToEpoch: undefined }, fixture.principal);
    expect((await described())[0]).toEqual(known);
    expect(await fixture.client.listFiles(asked, fixture.principal)).toMatchObject({
      files: ['later.txt'],
      stale: false,
    });
  });
});

describe('leaving a workspace', () => {
  it('ends the sandbox, unless a later run has one since', async () => {
    const grant = { sessionId: 'l1', epoch: 2, workspace: PROJECT };
    const { incarnation } = await fixture.shell('true', grant);
    const leave = (upToEpoch: number) => fixture.client.release({ sessionId: 'l1', upToEpoch }, fixture.principal);
    await leave(1);
    expect((await fixture.shell('true', grant)).incarnation).toBe(incarnation);
    await leave(2);
    expect((await fixture.shell('true', { ...grant, epoch: 3 })).incarnation).not.toBe(incarnation);
  });

  it('lets the next run work in the other one', async () => {
    await add('next');
    await fixture.shell('true', { sessionId: 'm1', epoch: 1 });
    const moved = { ...inTree('next', 'm1'), epoch: 2 };
    expect((await fixture.shell('git branch --show-current', moved)).output).toBe('next\n');
    expect((await fixture.shell('git branch --show-current', { sessionId: 'm1', epoch: 3, workspace: PROJECT })).output).toBe('main\n'); // prettier-ignore
  });
});

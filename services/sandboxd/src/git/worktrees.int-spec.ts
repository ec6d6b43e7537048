import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { listFiles } from '../files/list-files';
import { Worktrees } from './worktrees';

const environment = {
  PATH: process.env['PATH'] ?? '',
  HOME: '/nonexistent',
  ...{ GIT_AUTHOR_NAME: 'a', GIT_AUTHOR_EMAIL: 'a@example.org', GIT_COMMITTER_NAME: 'a', GIT_COMMITTER_EMAIL: 'a@example.org' }, // prettier-ignore
};

let base: string;
let root: string;
let worktrees: Worktrees;

beforeEach(() => {
  base = mkdtempSync(path.join(tmpdir(), 'margay-trees-'));
  root = path.join(base, 'project');
  mkdirSync(root);
  worktrees = new Worktrees({ root, environment });
});
afterEach(() => rmSync(base, { recursive: true, force: true }));

const gitIn = (cwd: string, ...words: string[]) =>
  execFileSync('git', words, { cwd, env: environment, encoding: 'utf8', stdio: 'pipe' }).trim();
const git = (...words: string[]) => gitIn(root, ...words);
const folder = (slug: string) => path.join(root, '.margay/worktrees', slug);
const add = (branch: string, from = '', slug = branch.replaceAll('/', '-')) =>
  worktrees.add({ slug, branch, base: from });
const remove = (slug: string, { force = false, deleteBranch = false } = {}) =>
  worktrees.remove({ slug, force, deleteBranch });
const list = () => listFiles({ root, limit: 100, environment });

function repository(): void {
  git('init', '-q', '-b', 'main');
  writeFileSync(path.join(root, 'a.txt'), 'one\n');
  git('add', '.');
  git('commit', '-q', '-m', 'first');
}

function commitIn(slug: string, file = 'b.txt'): void {
  writeFileSync(path.join(folder(slug), file), 'two\n');
  gitIn(folder(slug), 'add', '.');
  gitIn(folder(slug), 'commit', '-q', '-m', 'second');
}

describe('a worktree', () => {
  beforeEach(repository);

  it('has the files of its branch, which is made where a base is named', async () => {
    const { worktree, created } = await add('feature/a', 'main');
    expect(created).toBe(true);
    expect(worktree).toEqual({
      slug: 'feature-a',
      path: folder('feature-a'),
      branch: 'feature/a',
      head: git('rev-parse', 'main'),
      clean: true,
    });
    expect(readFileSync(path.join(folder('feature-a'), 'a.txt'), 'utf8')).toBe('one\n');
    expect(gitIn(folder('feature-a'), 'rev-parse', '--abbrev-ref', 'HEAD')).toBe('feature/a');
    expect(git('status', '--porcelain')).toBe('');
    expect((await list()).files).toEqual(['a.txt']);
    expect((await list()).worktrees).toEqual([worktree]);
  });

  it('is one for each branch, and is found again as it is', async () => {
    await add('x', 'main');
    commitIn('x');
    expect(await add('x', 'main')).toMatchObject({ created: false, worktree: { clean: false } });
    git('branch', 'y');
    expect(await add('y')).toMatchObject({ created: true });
  });

  it('is refused where its branch is checked out, missing or there already, and where its folder is taken', async () => {
    await expect(add('main')).rejects.toMatchObject({ reason: 'branch_in_use', httpStatus: 409 });
    await expect(add('nope')).rejects.toMatchObject({ reason: 'branch_unknown', httpStatus: 400 });
    await expect(add('z', 'nope')).rejects.toMatchObject({ reason: 'branch_unknown' });
    git('branch', 'old');
    await expect(add('old', 'main')).rejects.toMatchObject({ reason: 'branch_exists', httpStatus: 409 });
    await add('old');
    await expect(add('old', '', 'other')).rejects.toMatchObject({ reason: 'branch_in_use' });
    git('branch', 'taken');
    await expect(add('taken', '', 'old')).rejects.toMatchObject({ reason: 'worktree_exists' });
    mkdirSync(folder('taken'));
    await expect(add('taken')).rejects.toMatchObject({ reason: 'worktree_exists' });
    await expect(add('taken', '', '../up')).rejects.toMatchObject({ reason: 'bad_request' });
  });

  it('finds its repository also where it is shown as a workspace of its own', async () => {
    await add('own', 'main');
    expect(readFileSync(path.join(folder('own'), '.git'), 'utf8')).toBe('gitdir: ../../../.git/worktrees/own\n');
    expect(statSync(path.join(root, '.git/worktrees/own/gitdir')).mtimeMs).toBeGreaterThan(Date.now());
    const shown = [
      ...[
        '--unshare-user',
        '--ro-bind',
        '/usr',
        '/usr',
        '--symlink',
        'usr/bin',
        '/bin',
        '--symlink',
        'usr/lib',
        '/lib',
      ],
      ...['--symlink', 'usr/lib64', '/lib64', '--proc', '/proc', '--dev', '/dev'],
      ...['--bind', folder('own'), '/workspace', '--bind', path.join(root, '.git'), '/.git', '--chdir', '/workspace'],
    ];
    const script =
      'echo new > c.txt && git add . && git commit -q -m third && git worktree prune && git status --short';
    const ran = spawnSync('bwrap', [...shown, 'sh', '-c', script], { env: environment, encoding: 'utf8' });
    // Not every machine can make namespaces; where it can, it is what sandboxes do.
    if (ran.error === undefined && !ran.stderr.includes('bwrap:')) {
      expect([ran.status, ran.stdout, ran.stderr]).toEqual([0, '', '']);
      expect(git('log', '-1', '--format=%s', 'own')).toBe('third');
    }
    expect((await list()).worktrees).toMatchObject([{ slug: 'own', path: folder('own') }]);
    git('worktree', 'prune');
    expect((await list()).worktrees).toHaveLength(1);
  });

  it('goes, and its branch with it if that is wanted', async () => {
    await add('margay/a', 'main');
    expect(await remove('margay-a', { deleteBranch: true })).toEqual({ removed: true });
    expect(existsSync(folder('margay-a'))).toBe(false);
    expect(git('branch', '--list', 'margay/a')).toBe('');
    expect(await remove('margay-a')).toEqual({ removed: false });
    await add('kept', 'main');
    await remove('kept');
    expect(git('branch', '--list', 'kept')).toBe('kept');
  });

  it('with new files, or commits that are nowhere else, goes by force only', async () => {
    await add('files', 'main');
    writeFileSync(path.join(folder('files'), 'new'), '');
    await expect(remove('files')).rejects.toMatchObject({ reason: 'worktree_dirty', httpStatus: 409 });
    await add('commits', 'main');
    commitIn('commits');
    await expect(remove('commits')).rejects.toMatchObject({ reason: 'worktree_dirty' });
    expect((await list()).worktrees.map(({ clean }) => clean)).toEqual([false, false]);
    expect(await remove('files', { force: true })).toEqual({ removed: true });
    expect(await remove('commits', { force: true })).toEqual({ removed: true });
    expect(git('log', '-1', '--format=%s', 'commits')).toBe('second');
  });

  it('is clean once its commits are elsewhere: on its upstream if it has one, else on any remote or branch', async () => {
    await add('merged', 'main');
    commitIn('merged');
    git('merge', '-q', 'merged');
    expect(await remove('merged')).toEqual({ removed: true });
    const remote = path.join(base, 'remote.git');
    gitIn(base, 'init', '-q', '--bare', remote);
    git('remote', 'add', 'origin', remote);
    await add('pushed', 'main');
    gitIn(folder('pushed'), 'push', '-q', '-u', 'origin', 'pushed');
    commitIn('pushed', 'c.txt');
    expect((await list()).worktrees).toMatchObject([{ clean: false }]);
    git('branch', 'copy', 'pushed');
    expect((await list()).worktrees).toMatchObject([{ clean: false }]);
    gitIn(folder('pushed'), 'push', '-q');
    expect((await list()).worktrees).toMatchObject([{ clean: true }]);
  });

  it('whose making broke off is made anew', async () => {
    await add('half', 'main');
    rmSync(path.join(folder('half'), 'a.txt'));
    writeFileSync(path.join(root, '.git/worktrees/half/locked'), 'initializing');
    expect((await list()).worktrees).toEqual([]);
    expect(await add('half', 'main')).toMatchObject({ created: true, worktree: { clean: true } });
    expect(existsSync(path.join(folder('half'), 'a.txt'))).toBe(true);
  });

  it('is made one after the other, whoever asks at once', async () => {
    const made = await Promise.all(['p', 'q', 'r', 'p'].map((branch) => add(branch, 'main')));
    expect(made.map(({ created }) => created)).toEqual([true, true, true, false]);
    expect((await list()).worktrees).toHaveLength(3);
  });

  it('starts no hook of the repository', async () => {
    writeFileSync(path.join(root, '.git/hooks/post-checkout'), `#!/bin/sh\ntouch ${base}/started\n`, { mode: 0o755 });
    await add('quiet', 'main');
    expect(existsSync(path.join(base, 'started'))).toBe(false);
  });
});

it('is refused in a folder that is no repository, or only a part of one', async () => {
  await expect(add('a', 'main')).rejects.toMatchObject({ reason: 'not_git', httpStatus: 400 });
  gitIn(base, 'init', '-q');
  await expect(add('a', 'main')).rejects.toMatchObject({ reason: 'not_git' });
});

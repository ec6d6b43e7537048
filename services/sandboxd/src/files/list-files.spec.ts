import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { listFiles } from './list-files';

let root: string;
const environment = { PATH: process.env['PATH'] ?? '', HOME: '/nonexistent' };
const list = (limit = 100) => listFiles({ root, limit, environment });

beforeEach(() => {
  root = mkdtempSync(path.join(tmpdir(), 'margay-list-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function write(...files: string[]): void {
  for (const file of files) {
    mkdirSync(path.join(root, path.dirname(file)), { recursive: true });
    writeFileSync(path.join(root, file), '');
  }
}

const git = (...words: string[]) =>
  execFileSync('git', ['-c', 'user.name=a', '-c', 'user.email=a@example.org', ...words], { cwd: root, stdio: 'pipe' });

describe('the files of a repository', () => {
  beforeEach(() => git('init', '-q', '-b', 'main'));

  it('are those that git tracks and the new ones that it does not ignore, without deleted ones', async () => {
    write('src/a.ts', 'gone.ts', '.gitignore');
    writeFileSync(path.join(root, '.gitignore'), 'dist/\n');
    git('add', '.');
    git('commit', '-q', '-m', 'first');
    rmSync(path.join(root, 'gone.ts'));
    write('src/ž.ts', 'dist/out.js');
    const found = await list();
    expect(found.files).toEqual(['.gitignore', 'src/a.ts', 'src/ž.ts']);
    expect(found).toMatchObject({ isGit: true, truncated: false, head: expect.stringMatching(/^[0-9a-f]{40}$/) });
  });

  it('are listed without starting what the repository names as its monitor', async () => {
    write('a.ts', 'monitor');
    writeFileSync(path.join(root, 'monitor'), `#!/bin/sh\ntouch ${root}/started\n`, { mode: 0o755 });
    git('config', 'core.fsmonitor', path.join(root, 'monitor'));
    expect((await list()).files).toEqual(['a.ts', 'monitor']);
  });

  it('come with its branches, the one that is checked out, and those of its worktrees', async () => {
    expect(await list()).toMatchObject({ isGit: true, head: '', currentBranch: 'main', branches: [] });
    git('commit', '-q', '--allow-empty', '-m', 'first');
    git('branch', 'feature/a');
    git('branch', 'other');
    git('worktree', 'add', '-q', path.join(root, '.margay/worktrees/other'), 'other');
    const found = await list();
    expect(found).toMatchObject({ currentBranch: 'main', branches: ['feature/a', 'main', 'other'] });
    expect(found.branchesInUse.toSorted()).toEqual(['main', 'other']);
    git('checkout', '-q', '--detach');
    expect(await list()).toMatchObject({ currentBranch: '', branchesInUse: ['other'] });
  });

  it('leave out names with control characters', async () => {
    write('a.ts', 'b\n.ts', 'c\u001b[2J.ts');
    expect((await list()).files).toEqual(['a.ts']);
  });
});

describe('the files of another folder', () => {
  it('are what a walk finds, links unfollowed and heavy folders left out', async () => {
    write('b/c/d.txt', 'a.txt', 'node_modules/x/index.js', '.margay/worktrees/w/a.txt');
    symlinkSync('/etc', path.join(root, 'etc'));
    const none = { isGit: false, head: '', currentBranch: '', branches: [], branchesInUse: [] };
    expect(await list()).toMatchObject({ files: ['a.txt', 'b/c/d.txt', 'etc'], ...none, truncated: false });
  });

  it('are cut at the limit, the upper ones first', async () => {
    write('z.txt', 'a/b/c.txt', 'y.txt');
    const found = await list(2);
    expect(found.truncated).toBe(true);
    expect(found.files).toHaveLength(2);
  });
});

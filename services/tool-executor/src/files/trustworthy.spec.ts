import { EMPTY_CONTENT } from './index-store-fixture';
import { trustworthy } from './trustworthy';

describe('what a sandbox says of its workspace', () => {
  it('is kept as far as it can be shown', () => {
    const worktree = { slug: '../up', path: '/a\n', branch: 'b', head: 'c', clean: true };
    const said = {
      ...EMPTY_CONTENT,
      files: ['a', 'b\u001b[31m', 'c'.repeat(5_000)],
      branches: ['main', 'x\ny', 'z'.repeat(300)],
      currentBranch: 'main\u0000',
      remoteHost: 'git.example.org',
      worktrees: [worktree],
    };
    expect(trustworthy(said)).toEqual({
      ...EMPTY_CONTENT,
      files: ['a'],
      branches: ['main'],
      currentBranch: '',
      remoteHost: 'git.example.org',
      worktrees: [{ ...worktree, slug: '', path: '' }],
    });
  });

  it('is bounded', () => {
    const many = Array.from({ length: 60_000 }, (_, number) => `f${number}`);
    const found = trustworthy({ ...EMPTY_CONTENT, files: many, branches: many });
    expect([found.files.length, found.truncated, found.branches.length]).toEqual([50_000, true, 1_000]);
  });
});

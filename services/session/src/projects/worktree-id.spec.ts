import { parseWorktreeId, slugOf, worktreeIdOf } from './worktree-id';

const ID = 'a'.repeat(32);

describe('the id of a worktree', () => {
  it.each([
    [{ parent: `managed:${ID}`, slug: 'fix-1' }, `wt:${ID}:fix-1`],
    [{ parent: 'shop', slug: 'main' }, 'wt:shop:main'],
    [{ parent: 'team:shop', slug: 'x.y' }, 'wt:team:shop:x.y'],
  ])('names its project and its folder: %j', (name, id) => {
    expect(worktreeIdOf(name)).toBe(id);
    expect(parseWorktreeId(id)).toEqual(name);
  });

  it.each(['shop', 'wt:shop', 'wt:shop:..', 'wt:shop:.git', 'wt:shop:a/b', `managed:${ID}`])('is not %s', (text) =>
    expect(parseWorktreeId(text)).toBeUndefined(),
  );
});

it.each([
  ['feature/login', 'feature-login'],
  ['a//b c', 'a-b-c'],
  ['ü', '-'],
  ['..', undefined],
  ['', undefined],
])('the folder of branch %p is %p', (branch, slug) => expect(slugOf(branch)).toBe(slug));

import { symlinkSync } from 'node:fs';
import path from 'node:path';
import { TestWorkspace, testCall } from '../test-workspace';
import { listDirectoryTool } from './list-directory';

describe('aider_list_dir_tool', () => {
  let workspace: TestWorkspace;
  beforeEach(() => {
    workspace = new TestWorkspace();
  });
  afterEach(() => workspace.remove());
  const list = async (args: unknown) => (await listDirectoryTool(args, workspace.paths, testCall())).result;

  it('lists files recursively in the order of their paths', async () => {
    for (const name of ['b.txt', 'a/z.txt', 'a-b.txt', 'a/b/c.txt']) workspace.write(name, '');
    const entries = ['a-b.txt', 'a/b/c.txt', 'a/z.txt', 'b.txt'];
    expect(await list({})).toEqual({ kind: 'dir', path: '.', entries });
    expect([...entries].sort()).toEqual(entries);
  });

  it('leaves out what git ignores, node_modules and .git, and honours exceptions of nested files', async () => {
    workspace.write('.gitignore', '*.log\nbuild/\n/only-here\n');
    workspace.write('sub/.gitignore', '!keep.log\n');
    for (const name of ['x.log', 'build/out', 'only-here', 'sub/only-here', 'sub/keep.log', 'sub/y.log']) {
      workspace.write(name, '');
    }
    workspace.write('node_modules/a/index.js', '');
    workspace.write('.git/config', '');
    expect(await list({})).toMatchObject({
      entries: ['.gitignore', 'sub/.gitignore', 'sub/keep.log', 'sub/only-here'],
    });
    expect(await list({ path: 'sub' })).toMatchObject({ entries: ['sub/.gitignore', 'sub/keep.log', 'sub/only-here'] });
  });

  it('cuts at max_entries and says so', async () => {
    for (let index = 0; index < 5; index += 1) workspace.write(`f${index}`, '');
    expect(await list({ max_entries: 3 })).toEqual({
      kind: 'dir',
      path: '.',
      entries: ['f0', 'f1', 'f2'],
      truncated: true,
    });
    expect(await list({ max_entries: 5 })).not.toHaveProperty('truncated');
  });

  it('lists a file as itself and fails for what does not exist', async () => {
    workspace.write('a/b.txt', '');
    expect(await list({ path: 'a/b.txt' })).toMatchObject({ entries: ['a/b.txt'] });
    await expect(list({ path: 'nope' })).rejects.toThrow('nope: no such file or directory');
  });

  it('skips links that lead out and does not follow links to folders', async () => {
    workspace.write('../outside.txt', '');
    workspace.write('a/inside.txt', '');
    symlinkSync('../outside.txt', path.join(workspace.root, 'out'));
    symlinkSync('.', path.join(workspace.root, 'circle'));
    symlinkSync('a/inside.txt', path.join(workspace.root, 'in'));
    expect(await list({})).toMatchObject({ entries: ['a/inside.txt', 'in'] });
  });
});

import { mkdir, readFile, stat, symlink, readlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { temporaryFolder } from '../fixtures.testing';
import { prepareWorkspace, type WorkspaceChoice } from './workspace';

describe('prepareWorkspace', () => {
  let folder: Awaited<ReturnType<typeof temporaryFolder>>;

  beforeEach(async () => {
    folder = await temporaryFolder();
    await mkdir(join(folder.path, 'sample'));
    await writeFile(join(folder.path, 'sample/config.py'), 'session_daily_limit = 10\n');
    await mkdir(join(folder.path, 'mine'));
    await writeFile(join(folder.path, 'mine/file'), 'mine');
    await symlink('../outside', join(folder.path, 'mine/link'));
  });
  afterEach(() => folder.remove());

  const prepare = (choice: Partial<WorkspaceChoice> = {}) =>
    prepareWorkspace({
      home: join(folder.path, 'home'),
      calledIn: folder.path,
      isCopied: false,
      sample: join(folder.path, 'sample'),
      userId: 1000,
      now: () => new Date('2026-03-02T09:00:00Z'),
      ...choice,
    });

  it('copies the sample project to a new folder each time', async () => {
    const first = await prepare();
    expect(first).toBe(join(folder.path, 'home/workspaces/sample-20260302-090000'));
    expect(await readFile(join(first, 'config.py'), 'utf8')).toContain('session_daily_limit');
    expect(await prepare()).toBe(`${first}-2`);
  });

  it('takes a named folder in place, relative to where npm was called', async () => {
    expect(await prepare({ workspace: 'mine' })).toBe(join(folder.path, 'mine'));
  });

  it('copies a named folder when told to, links as they are', async () => {
    const copy = await prepare({ workspace: 'mine', isCopied: true });
    expect(copy).toMatch(/home\/workspaces\/mine-20260302-090000$/);
    expect(await readFile(join(copy, 'file'), 'utf8')).toBe('mine');
    expect(await readlink(join(copy, 'link'))).toBe('../outside');
  });

  it('refuses a folder that is not there', async () => {
    await expect(prepare({ workspace: 'mine/file' })).rejects.toMatchObject({ reason: 'workspace_missing' });
  });

  it('refuses to copy a folder into itself', async () => {
    await expect(prepare({ workspace: '.', isCopied: true })).rejects.toMatchObject({ reason: 'workspace_holds_home' });
  });

  it('as root, refuses a folder of root and names the way out', async () => {
    const isRootsFolder = (await stat(join(folder.path, 'mine'))).uid === 0;
    const result = prepare({ workspace: 'mine', userId: 0 });
    if (isRootsFolder) await expect(result).rejects.toThrow(/--workspace-copy/);
    else expect(await result).toBe(join(folder.path, 'mine'));
  });
});

import { mkdirSync, mkdtempSync, realpathSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Workspaces } from './workspaces';

let base: string;
let home: string;
const workspaces = (isRoot = false): Workspaces => new Workspaces({ home, isRoot });
const inPlace = (folder: string) => ({ kind: 'path' as const, path: folder });

beforeEach(() => {
  base = realpathSync(mkdtempSync(path.join(tmpdir(), 'margay-workspaces-')));
  home = path.join(base, 'home');
  mkdirSync(path.join(home, 'keys'), { recursive: true });
});
afterEach(() => rmSync(base, { recursive: true, force: true }));

describe('Workspaces', () => {
  it('makes a folder for a session without one, for its eyes only, and finds it again', async () => {
    const { folder } = await workspaces().locate('s1', { kind: 'own' });
    expect(folder).toBe(path.join(home, 'workspaces/s1'));
    expect(statSync(folder).mode & 0o777).toBe(0o700);
    writeFileSync(path.join(folder, 'kept'), '');
    expect((await workspaces().locate('s1', { kind: 'own' })).folder).toBe(folder);
  });

  it('refuses a session id that is a path', async () => {
    await expect(workspaces().locate('../x', { kind: 'own' })).rejects.toMatchObject({ reason: 'bad_session_id' });
  });

  it('uses a project folder in place, links resolved', async () => {
    mkdirSync(path.join(base, 'project'));
    symlinkSync('project', path.join(base, 'link'));
    const { folder } = await workspaces().locate('s1', inPlace(path.join(base, 'link')));
    expect(folder).toBe(path.join(base, 'project'));
  });

  it('names a folder that is missing or none', async () => {
    writeFileSync(path.join(base, 'file'), '');
    for (const name of ['missing', 'file']) {
      const attempt = workspaces().locate('s1', inPlace(path.join(base, name)));
      await expect(attempt).rejects.toMatchObject({
        reason: 'workspace_missing',
        message: expect.stringContaining(name),
      });
    }
  });

  it('refuses the system, its own home, and whatever holds or lies in it, also behind a link', async () => {
    symlinkSync('home/keys', path.join(base, 'innocent'));
    for (const folder of ['/', '/etc', base, home, path.join(home, 'keys'), path.join(base, 'innocent')]) {
      await expect(workspaces().locate('s1', inPlace(folder))).rejects.toMatchObject({ reason: 'workspace_refused' });
    }
  });
});

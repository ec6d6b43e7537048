import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  realpathSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { SandboxRecord } from './sandbox-records';
import { Workspaces, type Claim } from './workspaces';

let base: string;
let home: string;
const workspaces = (isRoot = false): Workspaces => new Workspaces({ home, isRoot });
const claim = (sessionId: string, workspace: Claim['workspace'], tenantId = 't1'): Claim => ({
  sessionId,
  tenantId,
  workspace,
});
const inPlace = (folder: string) => ({ kind: 'path' as const, path: folder });

beforeEach(() => {
  base = realpathSync(mkdtempSync(path.join(tmpdir(), 'margay-workspaces-')));
  home = path.join(base, 'home');
  mkdirSync(path.join(home, 'keys'), { recursive: true });
});
afterEach(() => rmSync(base, { recursive: true, force: true }));

describe('Workspaces', () => {
  it('makes a folder for a session without one, for its eyes only, and finds it again', async () => {
    const { folder } = await workspaces().locate(claim('s1', { kind: 'own' }));
    expect(folder).toBe(path.join(home, 'workspaces/s1'));
    expect(statSync(folder).mode & 0o777).toBe(0o700);
    writeFileSync(path.join(folder, 'kept'), '');
    expect((await workspaces().locate(claim('s1', { kind: 'own' }))).folder).toBe(folder);
  });

  it('refuses a session id that is a path', async () => {
    await expect(workspaces().locate(claim('../x', { kind: 'own' }))).rejects.toMatchObject({
      reason: 'bad_session_id',
    });
  });

  it('uses a project folder in place, links resolved', async () => {
    mkdirSync(path.join(base, 'project'));
    symlinkSync('project', path.join(base, 'link'));
    const { folder } = await workspaces().locate(claim('s1', inPlace(path.join(base, 'link'))));
    expect(folder).toBe(path.join(base, 'project'));
  });

  it('names a folder that is missing or none', async () => {
    writeFileSync(path.join(base, 'file'), '');
    for (const name of ['missing', 'file']) {
      const attempt = workspaces().locate(claim('s1', inPlace(path.join(base, name))));
      await expect(attempt).rejects.toMatchObject({
        reason: 'workspace_missing',
        message: expect.stringContaining(name),
      });
    }
  });

  it('refuses the system, its own home, and whatever holds or lies in it, also behind a link', async () => {
    symlinkSync('home/keys', path.join(base, 'innocent'));
    for (const folder of ['/', '/etc', base, home, path.join(home, 'keys'), path.join(base, 'innocent')]) {
      await expect(workspaces().locate(claim('s1', inPlace(folder)))).rejects.toMatchObject({
        reason: 'workspace_refused',
      });
    }
  });

  it("refuses what is another session's alone, also a part of it, and copies of another tenant", async () => {
    const record = (sessionId: string, folder: string): SandboxRecord => ({
      ...{ sandboxId: sessionId, tenantId: 't1', sessionId, folder, uid: 20_001, gid: 20_001 },
      ...{ generation: 0, epoch: 1, fingerprint: '', processes: [], lastUsedAt: 0 },
    });
    const { folder: own } = await workspaces().locate(claim('s1', { kind: 'own' }));
    const copy = path.join(home, 'workspaces', 'copy');
    for (const folder of [path.join(own, 'part'), copy]) mkdirSync(folder);
    const records = [record('s1', own), record('s2', copy)];
    for (const folder of [own, path.join(own, 'part')]) {
      const attempt = workspaces().locate(claim('s3', inPlace(folder)), records);
      await expect(attempt).rejects.toMatchObject({ reason: 'workspace_refused' });
    }
    expect((await workspaces().locate(claim('s3', inPlace(copy)), records)).folder).toBe(copy);
    const foreign = workspaces().locate(claim('s3', inPlace(copy), 't2'), records);
    await expect(foreign).rejects.toMatchObject({ reason: 'workspace_refused' });
  });

  it('makes one folder for all sessions of a managed project, with notes for agents, and no other way leads there', async () => {
    const workspace = { kind: 'project' as const, projectId: 'a'.repeat(32) };
    const { folder } = await workspaces().locate(claim('s1', workspace));
    expect(folder).toBe(path.join(home, `workspaces/p-${'a'.repeat(32)}`));
    expect(statSync(folder).mode & 0o777).toBe(0o700);
    const notes = path.join(folder, 'CLAUDE.md');
    expect(readFileSync(notes, 'utf8')).toContain('About this project');
    rmSync(notes);
    expect((await workspaces().locate(claim('s2', workspace))).folder).toBe(folder);
    expect(existsSync(notes)).toBe(false);
    mkdirSync(path.join(folder, 'src'));
    for (const way of [folder, path.join(folder, 'src')])
      await expect(workspaces().locate(claim('s3', inPlace(way)))).rejects.toMatchObject({
        reason: 'workspace_refused',
      });
  });

  it('refuses a project id that is a path', async () => {
    const malformed = workspaces().locate(claim('s1', { kind: 'project', projectId: '../x' }));
    await expect(malformed).rejects.toMatchObject({ reason: 'bad_project_id' });
  });
});

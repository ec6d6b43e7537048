import { createHash } from 'node:crypto';
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ExecutorFixture } from '../executor-fixture';

const CONTENT = Buffer.from('attached text\n');
const sha256 = createHash('sha256').update(CONTENT).digest('hex');

let fixture: ExecutorFixture;
let project: string;

beforeAll(async () => {
  fixture = await new ExecutorFixture().start();
  project = mkdtempSync(path.join(tmpdir(), 'margay-project-'));
  mkdirSync(path.join(project, 'src'));
  writeFileSync(path.join(project, 'src/main.ts'), '');
  writeFileSync(path.join(project, 'README.md'), '');
  chmodSync(project, 0o755);
});
afterAll(async () => {
  await fixture.remove();
  rmSync(project, { recursive: true, force: true });
});

async function place(sessionId: string, content: Buffer, epoch = 1) {
  const piece = { name: 'notes.txt', sha256, totalBytes: CONTENT.length, offset: 0, content };
  return fixture.client.placeAttachment(piece, { grant: await fixture.token({ sessionId, epoch }) });
}

const list = (sessionId: string, workspace: object, query = '') => {
  const request = { sessionId, workspaceJson: JSON.stringify(workspace), query, limit: 100 };
  return fixture.client.listFiles(request, fixture.principal);
};

describe('an attached file', () => {
  it('lies in the sandbox, where tools read and cannot change it', async () => {
    expect(await place('a1', Buffer.alloc(0))).toEqual({ done: false, nextOffset: 0 });
    expect(await place('a1', CONTENT)).toEqual({ done: true, nextOffset: CONTENT.length });
    const grant = { sessionId: 'a1' };
    expect((await fixture.shell('cat $MARGAY_ATTACHMENTS/notes.txt', grant)).output).toBe(CONTENT.toString());
    expect((await fixture.shell('echo x > $MARGAY_ATTACHMENTS/notes.txt', grant)).finished?.exitCode).not.toBe(0);
    if (fixture.isolation !== 'bwrap') return;
    const read = await fixture.call('read_file', { path: '/margay/attachments/notes.txt' }, grant);
    expect(read.result).toMatchObject({ text: '1\tattached text' });
    const edit = { file_path: '/margay/attachments/notes.txt', old_string: 'text', new_string: 'X' };
    expect((await fixture.call('file_edit_tool', edit, grant)).finished?.status).toBe('error');
  });

  it('is there after an idle stop, and placed by the owner of the run only', async () => {
    await place('a2', CONTENT, 3);
    await fixture.stop();
    await fixture.start();
    expect(await place('a2', Buffer.alloc(0), 3)).toMatchObject({ done: true });
    await expect(place('a2', CONTENT, 2)).rejects.toMatchObject({ reason: 'stale_epoch' });
    const piece = { name: 'x', sha256, totalBytes: 1, offset: 0, content: Buffer.alloc(0) };
    await expect(fixture.client.placeAttachment(piece, fixture.principal)).rejects.toMatchObject({
      reason: 'grant_missing',
    });
  });
});

describe('the files of a workspace', () => {
  it('of a session are those that its commands made, as they are now', async () => {
    const grant = { sessionId: 'l1' };
    expect((await list('l1', { kind: 'own' })).files).toEqual([]);
    expect(readdirSync(path.join(fixture.home, 'workspaces'))).not.toContain('l1');
    await fixture.shell('mkdir -p src; touch src/a.ts b.md', grant);
    expect((await list('l1', { kind: 'own' })).files).toEqual(['b.md', 'src/a.ts']);
    expect((await list('l1', { kind: 'own' }, 'A.T')).files).toEqual(['src/a.ts']);
  });

  it('of a session whose sandbox sleeps are found, and its owner goes on at his epoch', async () => {
    const grant = { sessionId: 'l2', epoch: 4 };
    await fixture.shell('touch kept', grant);
    await fixture.stop();
    await fixture.start();
    expect((await list('l2', { kind: 'own' })).files).toEqual(['kept']);
    expect((await fixture.shell('ls', grant)).output).toBe('kept\n');
    await expect(fixture.shell('ls', { ...grant, epoch: 3 })).rejects.toMatchObject({ reason: 'stale_epoch' });
  });

  it('of a project are found without a session, and nothing runs afterwards', async () => {
    const workspace = { kind: 'path', path: project };
    if (process.getuid?.() === 0) {
      // A model's shell never runs as root, so neither does this.
      await expect(list('', workspace)).rejects.toMatchObject({ reason: 'workspace_owned_by_root' });
      return;
    }
    expect(await list('', workspace)).toEqual({ files: ['README.md', 'src/main.ts'], stale: false, truncated: false });
  });

  it('of a project come with the branches of its repository', async () => {
    const workspace = { kind: 'project', projectId: 'a'.repeat(32) };
    const branches = () => fixture.client.listBranches({ workspaceJson: JSON.stringify(workspace) }, fixture.principal);
    const command =
      'git init -q -b main . && git -c user.name=a -c user.email=a@example.org commit -q --allow-empty -m a';
    const made = await fixture.shell(command, {
      sessionId: 'b1',
      workspace: { kind: 'project', projectId: 'a'.repeat(32) },
    });
    expect(made.finished?.exitCode).toBe(0);
    expect(await branches()).toEqual({
      isGit: true,
      branches: ['main'],
      currentBranch: 'main',
      branchesInUse: ['main'],
      stale: false,
    });
    expect((await list('', workspace)).files).toEqual(['CLAUDE.md']);
  });

  it('are told to session only, and of workspaces that could be', async () => {
    const request = { sessionId: 'l1', workspaceJson: '{"kind":"own"}', query: '', limit: 1 };
    const asked = fixture.client.listFiles(request, { grant: await fixture.token() });
    await expect(asked).rejects.toMatchObject({ reason: 'principal_missing' });
    await expect(list('l1', { kind: 'host' })).rejects.toMatchObject({ reason: 'bad_workspace' });
  });
});

import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Session } from '@margay/client';
import { answer, byConversation, callTools } from '@margay/testing';
import { pack } from 'tar-stream';
import { PlatformHarness } from './harness';

jest.setTimeout(120_000);

async function tarOf(files: Record<string, string>): Promise<Uint8Array<ArrayBuffer>> {
  const archive = pack();
  for (const [name, text] of Object.entries(files)) archive.entry({ name }, text);
  archive.finalize();
  const chunks: Buffer[] = [];
  for await (const chunk of archive) chunks.push(chunk as Buffer);
  return new Uint8Array(Buffer.concat(chunks));
}

describe('what a project begins with', () => {
  const margay = new PlatformHarness({ mode: 'combined', env: { MARGAY_WORKSPACE_SWEEP_SECONDS: '0.5' } });

  beforeAll(() => margay.start(), 600_000);
  afterAll(() => margay.stop(), 180_000);

  /** The model runs what it is told, and says what came of it. */
  async function run(session: Session, command: string): Promise<string> {
    margay.script(
      byConversation(({ results, step }) =>
        step === 0
          ? callTools({ name: 'aider_shell_tool', arguments: { command } })
          : answer(results.at(-1)?.content ?? ''),
      ),
    );
    return (await (await session.query('go')).result()).text;
  }

  const isThere = (workspaceId: string): Promise<boolean> =>
    margay.client.workspaces.get(workspaceId).then(
      () => true,
      (error: { reason: string }) => error.reason !== 'workspace_not_found',
    );

  async function projectWith(content: { kind: 'upload' } | { kind: 'empty' } | { kind: 'clone'; url: string }) {
    const { project_id: projectId, workspace_id: workspaceId = '' } = await margay.client.createProject({
      name: 'Shop',
      content,
    });
    const session = await margay.client.sessions.create({ project: projectId });
    return { projectId, workspaceId, session };
  }

  it('is an archive that somebody sends, unpacked before the first call', async () => {
    const { workspaceId, session } = await projectWith({ kind: 'upload' });
    const sent = await margay.client.workspaces.upload(
      workspaceId,
      await tarOf({ 'src/main.ts': 'hello from the archive' }),
      {
        filename: 'shop.tar',
      },
    );
    expect(sent.content).toMatchObject({ kind: 'upload', status: 'pending' });
    expect(await run(session, 'cat src/main.ts')).toContain('hello from the archive');
    expect(await margay.client.workspaces.get(workspaceId)).toMatchObject({
      kind: 'project',
      content: { status: 'ready', source: { format: 'tar', filename: 'shop.tar' } },
    });
  });

  it('fails calls with the reason, not runs, and may be begun anew', async () => {
    // Nothing may be reached from here.
    const { workspaceId, session } = await projectWith({ kind: 'clone', url: 'https://git.example.com/shop' });
    const said = await run(session, 'true');
    expect(said).toMatch(/content_failed|could not be brought/);
    const { content } = await margay.client.workspaces.get(workspaceId);
    expect(content).toMatchObject({
      kind: 'clone',
      status: 'failed',
      reason: expect.stringMatching(/egress_denied|network/),
    });
    await margay.client.workspaces.begin(workspaceId, { kind: 'empty' });
    expect(await run(session, 'cat CLAUDE.md')).toContain('About this project');
  });

  it('is refused where it could only be read from the machine itself', async () => {
    for (const url of [
      'file:///etc',
      '/etc',
      'ssh://git@git.example.com/a',
      'git@git.example.com:a',
      'http://git.example.com/a',
    ])
      await expect(projectWith({ kind: 'clone', url })).rejects.toMatchObject({ http: { status: 400 } });
  });

  /** Resolves once the control process does not answer any more. */
  async function untilControlIsGone(): Promise<void> {
    const answers = () =>
      fetch(`${margay.platform.gatewayUrl}/healthz`).then(
        () => true,
        () => false,
      );
    while (await answers()) await delay(50);
  }

  it('is there whole after a crash between the sandbox and the store, brought once', async () => {
    const { workspaceId, session } = await projectWith({ kind: 'upload' });
    await margay.client.workspaces.upload(workspaceId, await tarOf({ note: 'kept' }), { filename: 'a.tar' });
    const env = { MARGAY_FAULT_POINTS: 'workspace.after-content=kill' };
    await margay.platform.restart('control', { env });
    const result = run(session, 'cat note; echo mine >> note');
    await untilControlIsGone();
    await margay.platform.restart('control');
    expect(await result).toContain('kept');
    expect(await run(session, 'cat note')).toContain('keptmine');
    expect((await margay.client.workspaces.get(workspaceId)).content).toMatchObject({ status: 'ready' });
  });

  it.each(['workspace.before-files', 'workspace.after-files'])('goes to its end after a crash at %s', async (point) => {
    const { projectId, workspaceId, session } = await projectWith({ kind: 'empty' });
    await run(session, 'touch mine');
    await margay.platform.restart('control', { env: { MARGAY_FAULT_POINTS: `${point}=kill` } });
    await margay.client.workspaces.delete(workspaceId).catch(() => undefined); // the process may die with the answer
    await untilControlIsGone();
    await margay.platform.restart('control');
    while (await isThere(workspaceId)) await delay(50);
    expect(existsSync(join(margay.home, 'workspaces', `p-${projectId}`))).toBe(false);
  });

  it('goes with its workspace, files and sandboxes, and nobody else sees it meanwhile', async () => {
    const { projectId, workspaceId, session } = await projectWith({ kind: 'empty' });
    await run(session, 'touch mine');
    const sandboxes = await margay.client.workspaces.sandboxes();
    expect(sandboxes).toContainEqual(expect.objectContaining({ session_id: session.id, workspace_id: workspaceId }));
    const folder = join(margay.home, 'workspaces', `p-${projectId}`);
    expect(existsSync(join(folder, 'mine'))).toBe(true);
    await margay.client.workspaces.hold(workspaceId, true);
    await expect(margay.client.workspaces.delete(workspaceId)).rejects.toMatchObject({ reason: 'legal_hold' });
    await margay.client.workspaces.hold(workspaceId, false);
    expect((await margay.client.workspaces.delete(workspaceId)).state).toBe('deleting');
    while (await isThere(workspaceId)) await delay(50);
    expect(existsSync(folder)).toBe(false);
    const left = await margay.client.workspaces.sandboxes();
    expect(left.map(({ session_id: id }) => id)).not.toContain(session.id);
    const deleted = await margay.request('DELETE', `/api/v_projects/${projectId}`);
    expect(deleted.status).toBe(204);
  });
});

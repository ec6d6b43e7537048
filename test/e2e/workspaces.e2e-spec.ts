import { setTimeout as delay } from 'node:timers/promises';
import { answer, byConversation, callTools } from '@margay/testing';
import { PlatformHarness } from './harness';

jest.setTimeout(180_000);

interface Uploaded {
  id: string;
  filename: string;
  stored_name: string;
}

describe('workspaces', () => {
  const margay = new PlatformHarness({ mode: 'combined' });

  beforeAll(() => margay.start(), 600_000);
  afterAll(() => margay.stop());

  async function upload(sessionId: string, name: string, text: string): Promise<Uploaded[]> {
    const form = new FormData();
    form.append('files', new File([text], name));
    const response = await fetch(`${margay.platform.gatewayUrl}/api/sessions/${sessionId}/attachments`, {
      method: 'POST',
      headers: { 'X-API-KEY': margay.platform.apiKey },
      body: form,
    });
    expect(response.status).toBe(200);
    return ((await response.json()) as { attachments: Uploaded[] }).attachments;
  }

  async function files(search: string): Promise<{ files: string[]; attachments: string[]; stale?: boolean }> {
    const response = await fetch(`${margay.platform.gatewayUrl}/api/files?${search}`, {
      headers: { 'X-API-KEY': margay.platform.apiKey },
    });
    expect(response.status).toBe(200);
    return (await response.json()) as { files: string[]; attachments: string[] };
  }

  it('shows an attached file to the model, which reads it in the sandbox, also in a later run', async () => {
    const asked: string[] = [];
    margay.script(
      byConversation(({ results, user }) => {
        asked.push(user);
        if (results.length > 0) return answer(`read: ${results.at(-1)?.content}`);
        return callTools({
          name: 'aider_shell_tool',
          arguments: { command: 'cat $MARGAY_ATTACHMENTS/*; ls -la $MARGAY_ATTACHMENTS' },
        });
      }),
    );
    const session = await margay.sessionWith({ 'README.md': 'a shop' });
    const attachments = await upload(session.id, 'plan.md', 'the secret plan');
    const run = await session.query('What is the plan?', { attachments });
    expect((await run.result()).text).toContain('the secret plan');
    expect(asked[0]).toContain(`/margay/attachments/${attachments[0]?.stored_name}`);
    const events = (await margay.storedFrames(session.id)).map((text) => JSON.parse(text) as Record<string, never>);
    const user = events.find(({ type }) => type === 'user') as unknown as { payload: { attachments: Uploaded[] } };
    expect(user.payload.attachments).toEqual(attachments);
    expect((await (await session.query('again')).result()).text).toContain('the secret plan');
    expect((await files(`session=${session.id}`)).attachments).toEqual(['plan.md']);
  });

  it('tells the model what a reference in the query leads to, and shows people what was typed', async () => {
    const asked: string[] = [];
    margay.script(
      byConversation(({ user }) => {
        asked.push(user);
        return answer('read');
      }),
    );
    const session = await margay.sessionWith({ 'notes/plan.md': 'the plan in the file' });
    await (await session.query('Sum up @notes/plan.md, and @nope.md')).result();
    expect(asked[0]).toContain('--- @notes/plan.md ---\nthe plan in the file\n--- end @notes/plan.md ---');
    expect(asked[0]).toContain('@nope.md');
    const events = (await margay.storedFrames(session.id)).map((text) => JSON.parse(text) as Record<string, never>);
    expect(events.find(({ type }) => type === 'user')).toMatchObject({
      payload: { text: 'Sum up @notes/plan.md, and @nope.md' },
    });
    await (await session.query('And again?')).result();
    expect(asked.join()).toContain('the plan in the file');
  });

  it('lists the files of the workspace for completion, as a command has just left them', async () => {
    const command = 'git init -q . && echo out/ > .gitignore && mkdir out && touch out/x src.ts';
    margay.script(
      byConversation(({ results }) =>
        results.length > 0 ? answer('done') : callTools({ name: 'aider_shell_tool', arguments: { command } }),
      ),
    );
    const session = await margay.sessionWith({ 'README.md': 'a shop', 'docs/read me.txt': '' });
    // Nothing runs there yet: a sandbox is started for the look.
    expect((await files(`session=${session.id}`)).files).toEqual(['README.md', 'docs/read me.txt']);
    await (await session.query('go')).result();
    // A list is served for two seconds.
    const wanted = ['.gitignore', 'README.md', 'docs/read me.txt', 'src.ts'];
    let found: string[] = [];
    for (let left = 300; left > 0 && found.join() !== wanted.join(); left -= 1) {
      await delay(100);
      found = (await files(`session=${session.id}`)).files;
    }
    expect(found).toEqual(wanted);
    expect((await files(`session=${session.id}&q=READ&limit=1`)).files).toEqual(['README.md']);
  });

  it('shares a managed project between sessions, lists its files, and takes no run once it is deleted', async () => {
    margay.script(
      byConversation(({ results, user }) =>
        results.length > 0
          ? answer(`${results[0]?.content}`)
          : callTools({ name: 'aider_shell_tool', arguments: { command: user } }),
      ),
    );
    const made = await margay.request('POST', '/api/v_projects', { name: 'Shop' });
    const { project_id: id } = made.body as { project_id: string };
    const { body } = await margay.request('GET', '/api/projects');
    expect(body).toMatchObject({ projects: [{ name: 'Shop', project_id: id, source: 'managed', available: true }] });
    const [first, second] = [
      await margay.client.sessions.create({ project: id }),
      await margay.client.sessions.create({ project: `managed:${id}` }),
    ];
    await (await first.query('echo made by the first > note.txt')).result();
    expect((await (await second.query('cat note.txt && echo and the second >> note.txt')).result()).text).toContain(
      'made by the first',
    );
    expect((await (await first.query('cat note.txt')).result()).text).toContain('and the second');
    for (const [search, wanted] of [
      [`session=${first.id}`, 'CLAUDE.md,note.txt'],
      [`project=${id}&q=note`, 'note.txt'],
    ] as const)
      while ((await files(search)).files.join() !== wanted) await delay(100);
    expect((await margay.request('DELETE', `/api/v_projects/${id}`)).status).toBe(204);
    const refused = await margay.request('POST', `/api/sessions/${first.id}/query`, { query: 'ls' });
    expect([refused.status, refused.headers.get('x-margay-reason')]).toEqual([400, 'unknown_project']);
  });
});

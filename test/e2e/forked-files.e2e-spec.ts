import type { Session } from '@margay/client';
import { answer, byConversation, callTools } from '@margay/testing';
import { PlatformHarness } from './harness';

jest.setTimeout(180_000);

describe('files', () => {
  const margay = new PlatformHarness({ mode: 'combined' });

  beforeAll(() => margay.start(), 600_000);
  afterAll(() => margay.stop());

  beforeEach(() => {
    margay.script(
      byConversation(({ results, user }) =>
        results.length > 0
          ? answer(`${results.at(-1)?.content}`)
          : callTools({ name: 'aider_shell_tool', arguments: { command: user } }),
      ),
    );
  });

  const run = async (session: Session, command: string): Promise<string> =>
    (await (await session.query(command)).result()).text ?? '';

  it('of a session without a project go into its forks, as they are then', async () => {
    const source = await margay.client.sessions.create({});
    await run(source, 'echo then > notes.txt');
    const forked = await margay.request('POST', `/api/sessions/${source.id}/fork`, {});
    expect(forked.status).toBe(201);
    const fork = margay.client.session((forked.body as { session_id: string }).session_id);
    expect(await run(fork, 'cat notes.txt; echo mine > notes.txt')).toContain('then');
    const { body } = await margay.request('GET', '/api/workspaces');
    const { workspaces } = body as { workspaces: { belongs_to: string; content: unknown }[] };
    expect(workspaces.find(({ belongs_to: id }) => id === fork.id)?.content).toMatchObject({
      kind: 'template',
      status: 'ready',
    });
  });
});

import { byConversation, callTools, answer } from '@margay/testing';
import { PlatformHarness } from './harness';

jest.setTimeout(180_000);

const READ = { name: 'read_file', arguments: { path: 'README.md' } };
const LIST = { name: 'aider_list_dir_tool', arguments: {} };

describe.each(['combined', 'split'] as const)('the main job, %s', (mode) => {
  const margay = new PlatformHarness({ mode, runners: 2 });

  beforeAll(() => margay.start(), 600_000);
  afterAll(() => margay.stop(), 180_000);

  it('answers a query with a model and a tool in a sandbox, every step stored and streamed', async () => {
    margay.script(
      byConversation(({ results }) =>
        results.length === 0 ? callTools(READ) : answer(`It says: ${results[0]?.content}`),
      ),
    );
    const session = await margay.sessionWith({ 'README.md': 'a small shop' });
    const run = await session.query('What is this?');
    const types: string[] = [];
    for await (const event of run.events()) types.push(event.type);
    const result = await run.result();
    expect(result.status).toBe('completed');
    expect(result.text).toContain('a small shop');
    const stored = (await margay.storedFrames(session.id)).map((text) => (JSON.parse(text) as { type: string }).type);
    expect(stored).toEqual([
      'session',
      'context',
      'context',
      'run_accepted',
      'user',
      'llm_call_start',
      'llm_call_end',
      'tool_call',
      'tool_result',
      'llm_call_start',
      'llm_call_end',
      'assistant',
      'completion',
    ]);
    expect(types).toEqual(expect.arrayContaining(['tool_call', 'tool_result', 'assistant', 'completion']));
  });

  it('runs ten steps with parallel tools, in order and without a gap', async () => {
    margay.script(
      byConversation(({ step }) =>
        step < 10
          ? callTools(
              ...Array.from({ length: 4 }, (_, i) => ({
                name: 'read_file',
                arguments: { path: `f${i}.txt`, limit: 100 + step },
              })),
            )
          : answer('done'),
      ),
    );
    const session = await margay.sessionWith({ 'f0.txt': '0', 'f1.txt': '1', 'f2.txt': '2', 'f3.txt': '3' });
    const result = await (await session.query('go')).result();
    expect(result).toMatchObject({ status: 'completed', text: 'done' });
    const events = (await margay.storedFrames(session.id)).map(
      (text) => JSON.parse(text) as { type: string; seq: number; ts: string },
    );
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1));
    expect(events.map(({ ts }) => ts)).toEqual(events.map(({ ts }) => ts).toSorted());
    expect(events.filter(({ type }) => type === 'tool_result')).toHaveLength(40);
    expect(events.filter(({ type }) => type === 'completion')).toHaveLength(1);
  });

  it('streams text as it comes, and the whole answer afterwards', async () => {
    const words = 'one two three four five six seven eight';
    let deltas: string[] = [];
    // The stream may be open only after the first of them, on a busy machine after all that come quickly.
    for (let deltaDelayMs = 30; deltas.length < 2; deltaDelayMs *= 4) {
      deltas = [];
      margay.script(() => answer(words, { chunks: 4, deltaDelayMs }));
      const session = await margay.sessionWith({});
      const run = await session.query('count');
      for await (const event of run.events()) if (event.type === 'agent_message_delta') deltas.push(event.payload.text);
      expect(words).toContain(deltas.join(''));
      expect((await run.result()).text).toBe(words);
    }
  });

  it('resumes a stream that is cut again and again: every event exactly once, byte for byte', async () => {
    margay.script(
      byConversation(({ step }) =>
        step < 6 ? callTools({ name: 'read_file', arguments: { path: 'a.txt', limit: 10 + step } }) : answer('done'),
      ),
    );
    const session = await margay.sessionWith({ 'a.txt': 'a' });
    await session.query('go');
    const got: string[] = [];
    let cursor: string | undefined;
    for (let cuts = 0; cuts < 200; cuts++) {
      const take = 1 + (cuts % 3);
      let count = 0;
      const frames = await margay.frames(session.id, {
        query: '?ids=1&deltas=0',
        ...(cursor === undefined ? {} : { after: cursor }),
        takes: ({ event }) => event.seq === undefined || ++count < take,
      });
      for (const { text, event } of frames) {
        if (event.seq === undefined) continue;
        got.push(text);
        cursor = String(event.seq);
      }
      if (frames.at(-1)?.event.type === 'stream_end') break;
    }
    expect(got).toEqual(await margay.storedFrames(session.id));
  });

  it('ends a call that takes too long and keeps its sibling', async () => {
    margay.script(
      byConversation(({ results }) =>
        results.length === 0
          ? callTools({ name: 'aider_shell_tool', arguments: { command: 'echo started; sleep 600', timeout: 5 } }, LIST)
          : answer(results.map(({ content }) => content).join('\n---\n')),
      ),
    );
    const session = await margay.sessionWith({ 'kept.txt': '' });
    const { text } = await (await session.query('go')).result();
    expect(text).toContain('"timed_out":true');
    expect(text).toContain('started');
    expect(text).toContain('kept.txt');
  }, 180_000);

  it('takes one of two queries at once and refuses the other', async () => {
    margay.script(() => ({ hang: true }));
    const session = await margay.sessionWith({});
    const path = `/api/sessions/${session.id}/query`;
    const outcomes = await Promise.all([
      margay.request('POST', path, { query: 'a' }),
      margay.request('POST', path, { query: 'b' }),
    ]);
    expect(outcomes.map(({ status }) => status).toSorted()).toEqual([202, 409]);
    expect(outcomes.find(({ status }) => status === 409)?.body).toEqual({ message: 'Session is already running.' });
    expect(await session.cancel()).toBe(true);
  });

  it('steers between two steps: the next model call has seen the message', async () => {
    let steered: Promise<unknown> = Promise.resolve();
    const session = await margay.sessionWith({ 'README.md': 'x' });
    margay.script(async ({ messages }) => {
      const said = JSON.stringify(messages);
      if (said.includes('be brief')) return answer('brief');
      steered = session.message('be brief');
      await steered;
      return callTools(READ);
    });
    const result = await (await session.query('go')).result();
    expect(result.text).toBe('brief');
  });

  it('shows nothing of a session to the key of another tenant', async () => {
    margay.script(() => answer('done'));
    const session = await margay.sessionWith({});
    await (await session.query('secret')).result();
    const headers = { 'x-api-key': await margay.foreignKey() };
    const path = `/api/sessions/${session.id}`;
    const answers = await Promise.all([
      margay.request('GET', path, undefined, headers),
      margay.request('GET', `${path}/events`, undefined, headers),
      margay.request('GET', `${path}/stream`, undefined, headers),
      margay.request('POST', `${path}/query`, { query: 'x' }, headers),
      margay.request('POST', `${path}/message`, { text: 'x' }, headers),
      margay.request('POST', `${path}/interrupt`, {}, headers),
      margay.request('POST', `${path}/terminate`, {}, headers),
    ]);
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 404));
    const list = await margay.request('GET', '/api/sessions', undefined, headers);
    expect(list.body).toEqual({ sessions: [] });
  });

  it('reads, edits and shows the diff: the change of one setting', async () => {
    const cwd = await margay.sampleWorkspace();
    margay.script(
      byConversation(({ results }) => {
        if (results.length === 0) return callTools({ name: 'read_file', arguments: { path: 'config.py' } });
        if (results.length > 1) return answer(`Changed: ${results[1]?.content}`);
        const [line] = /session_daily_limit\s*=\s*\d+/i.exec(results[0]?.content ?? '') ?? ['?'];
        const blocks = `config.py\n\`\`\`python\n<<<<<<< SEARCH\n${line}\n=======\n${line.replace(/\d+$/, '20')}\n>>>>>>> REPLACE\n\`\`\`\n`;
        return callTools({ name: 'aider_edit_block_tool', arguments: { content: blocks } });
      }),
    );
    const session = await margay.client.sessions.create({ cwd });
    const result = await (await session.query('Read config.py and change session_daily_limit to 20')).result();
    expect(result.status).toBe('completed');
    const frames = await margay.storedFrames(session.id);
    const edit = frames
      .map((text) => JSON.parse(text) as { type: string; payload: { tool_id?: string; result?: string } })
      .find(({ type, payload }) => type === 'tool_result' && payload.tool_id === 'aider_edit_block_tool');
    const diff = JSON.parse(edit?.payload.result ?? '{}') as { kind: string; text: string; files: string[] };
    expect(diff).toMatchObject({ kind: 'diff', files: ['config.py'] });
    expect(diff.text).toMatch(/^\+.*session_daily_limit\s*=\s*20$/im);
  });
});

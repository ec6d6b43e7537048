import { localHands, type LocalHands } from './local-hands';
import { TestWorkspace } from './test-workspace';

describe('localHands', () => {
  let workspace: TestWorkspace;
  let hands: LocalHands;
  beforeEach(() => {
    workspace = new TestWorkspace();
    hands = localHands({ root: workspace.root });
  });
  afterEach(async () => {
    await hands.close();
    workspace.remove();
  });

  it('lists descriptors with effect classes and never two of one id', () => {
    const effects = Object.fromEntries(hands.list().map((tool) => [tool.tool_id, tool.effect]));
    expect(effects).toEqual({
      read_file: 'pure',
      aider_list_dir_tool: 'pure',
      aider_shell_tool: 'unkeyed',
      shell_session_tool: 'unkeyed',
      aider_edit_block_tool: 'keyed',
      file_edit_tool: 'keyed',
    });
  });

  it('makes failures results', async () => {
    expect(await hands.execute('read_file', { path: 'nope' })).toMatchObject({
      status: 'error',
      result: 'nope: unable to read',
    });
    expect(await hands.execute('no_such_tool', {})).toMatchObject({ status: 'error', result: 'Tool not available' });
    expect(await hands.execute('read_file', {})).toMatchObject({
      status: 'error',
      result: expect.stringContaining('Invalid arguments for read_file: path'),
    });
  });

  it('streams output in order while a command runs', async () => {
    const chunks: string[] = [];
    const onOutput = (chunk: Buffer): void => void chunks.push(chunk.toString());
    await hands.execute('aider_shell_tool', { command: 'for i in 1 2 3; do echo $i; done' }, { onOutput });
    expect(chunks.join('')).toBe('1\n2\n3\n');
  });

  it('cancels by signal', async () => {
    const outcome = await hands.execute(
      'aider_shell_tool',
      { command: 'echo hi; sleep 60' },
      { signal: AbortSignal.timeout(300) },
    );
    expect(outcome.status).toBe('timed_out');
    const abort = new AbortController();
    const running = hands.execute('aider_shell_tool', { command: 'sleep 60' }, { signal: abort.signal });
    abort.abort();
    expect((await running).status).toBe('cancelled');
  });

  it('keeps commands to the workspace where bubblewrap works', async () => {
    const boxed = localHands({ root: workspace.root, sandbox: 'auto' });
    try {
      if (boxed.isolation === 'none') return expect(boxed.list()).not.toHaveLength(0);
      const command = `touch inside; touch ${workspace.base}/outside; ls`;
      const outcome = await boxed.execute('aider_shell_tool', { command });
      expect(outcome.result).toMatchObject({ stdout: expect.stringMatching(/inside/) });
      const outside = await hands.execute('aider_shell_tool', { command: 'ls ..' });
      expect(outside.result).toMatchObject({ stdout: 'project\n' });
    } finally {
      await boxed.close();
    }
  });
});

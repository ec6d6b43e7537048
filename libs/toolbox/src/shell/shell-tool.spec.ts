import { existsSync, mkdtempSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { ToolOutcome } from '../outcome';
import { TestWorkspace, testCall } from '../test-workspace';
import { OutputLog } from './output-log';
import { treeMembers } from './process-tree';
import { ShellHost } from './shell-host';
import { shellSessionTool } from './shell-session-tool';
import { shellTool } from './shell-tool';
import { shellEnvironment } from './spawn-shell';

type Payload = Record<string, unknown> & { stdout: string };
const payload = (outcome: ToolOutcome): Payload => outcome.result as Payload;

describe('aider_shell_tool', () => {
  let workspace: TestWorkspace;
  let shell: ShellHost;
  beforeEach(() => {
    workspace = new TestWorkspace();
    shell = new ShellHost({ environment: shellEnvironment({ PATH: process.env['PATH'] }, 'sid'), limits: {} });
  });
  afterEach(async () => {
    await shell.killAll(100);
    workspace.remove();
  });
  const run = (args: object, more = {}) => shellTool(args, workspace.paths, testCall(more), shell);

  it('returns merged output in order and the exit code', async () => {
    const outcome = await run({ command: 'echo a; echo b >&2; echo c; exit 3' });
    expect(outcome).toMatchObject({ status: 'ok', exitCode: 3 });
    expect(outcome.result).toEqual({
      kind: 'shell',
      command: 'echo a; echo b >&2; echo c; exit 3',
      cwd: workspace.root,
      exit_code: 3,
      stdout: 'a\nb\nc\n',
      stderr: '',
      duration_ms: expect.any(Number),
    });
  });

  it('gives commands nothing of our environment and no input', async () => {
    process.env['MARGAY_CANARY'] = 'canary';
    try {
      const { stdout } = payload(await run({ command: 'env | cut -d= -f1 | sort; cat; echo eof' }));
      const names = ['GIT_PAGER', 'GIT_TERMINAL_PROMPT', 'HOME', 'LANG', 'MARGAY_CALL_ID', 'MARGAY_SESSION_ID'];
      expect(stdout.split('\n')).toEqual(
        [...names, 'OLDPWD', 'PAGER', 'PATH', 'PWD', 'SHELL', 'SHLVL', 'TERM', 'TZ', '_', 'eof', ''].filter(
          (name) => name !== 'OLDPWD' || stdout.includes('OLDPWD'),
        ),
      );
    } finally {
      delete process.env['MARGAY_CANARY'];
    }
  });

  it('refuses unknown arguments, a bad timeout and a folder outside', async () => {
    await expect(run({ command: 'true', shell: 'zsh' })).rejects.toThrow(/shell/);
    await expect(run({ command: 'true', timeout: 0.5 })).rejects.toThrow(/timeout/);
    await expect(run({ command: 'true', cwd: '/' })).rejects.toThrow('outside all allowed');
    await expect(run({ command: 'true', cwd: 'missing' })).rejects.toThrow('is not a folder');
  });

  it('ends the whole tree at the time-out, also what left its group, and keeps the output', async () => {
    const command = 'echo early; setsid sleep 300 & (trap "" TERM; sleep 301) & sleep 302';
    let stdout = '';
    // On a busy machine a second may be over before the command says a word.
    for (let timeout = 1; stdout === ''; timeout *= 2) {
      const call = testCall();
      const outcome = await shellTool({ command, timeout }, workspace.paths, call, shell);
      expect(payload(outcome)).toMatchObject({ exit_code: 124, timed_out: true });
      expect(outcome.limitHit).toBe('wall_time');
      expect(await treeMembers({ marker: call.callId })).toEqual([]);
      ({ stdout } = payload(outcome));
    }
    expect(stdout).toBe('early\n');
  });

  it('ends the whole tree when aborted, long before that would end by itself', async () => {
    const abort = new AbortController();
    const call = testCall({ signal: abort.signal });
    const running = shellTool({ command: 'trap "" TERM; echo up; sleep 300; sleep 301' }, workspace.paths, call, shell);
    while (call.output.totalBytes === 0) await delay(5);
    abort.abort(new Error('stop'));
    await expect(running).rejects.toThrow('stop');
    expect(await treeMembers({ marker: call.callId })).toEqual([]);
  });

  it('does not wait for a child left in the background', async () => {
    const { stdout } = payload(await run({ command: 'sleep 300 & echo $!' }));
    // It is still there.
    expect(process.kill(Number(stdout), 'SIGKILL')).toBe(true);
  });

  it('reports a shell that cannot start as exit code 1 with its message', async () => {
    const outcome = await run({ command: `: ${'x'.repeat(200_000)}` });
    expect(payload(outcome)).toMatchObject({ exit_code: 1, stdout: expect.stringContaining('E2BIG') });
  });

  it('keeps 100 MB of output out of memory, with head and tail in the result and all of it in a file', async () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'margay-spill-'));
    const spillFile = path.join(folder, 'out.txt');
    const output = new OutputLog({ spillFile });
    try {
      const before = process.memoryUsage().rss;
      const command = 'echo first; head -c 104857600 /dev/zero | tr "\\0" "x"; echo; echo last';
      const outcome = await run({ command }, { output });
      const grown = process.memoryUsage().rss - before;
      const { stdout, stdout_file: file, stdout_bytes: bytes } = payload(outcome);
      expect(stdout.length).toBeLessThan(300_000);
      expect(stdout.startsWith('first\n')).toBe(true);
      expect(stdout.endsWith('\nlast\n')).toBe(true);
      expect({ file, bytes }).toEqual({ file: spillFile, bytes: 104_857_600 + 12 });
      expect(statSync(spillFile).size).toBe(104_857_600 + 12);
      expect((await output.read(104_857_600, 100)).toString()).toBe('xxxxxx\nlast\n');
      expect(grown).toBeLessThan(100 * 1024 * 1024);
    } finally {
      await output.close();
      rmSync(folder, { recursive: true });
    }
  });

  it('limits processes, memory and the size of files', async () => {
    const limits = { memoryBytes: 64 * 1024 * 1024, fileBytes: 1024 * 1024 };
    const small = new ShellHost({ environment: shellEnvironment({}), limits });
    const command = [
      'head -c 2000000 /dev/zero > big; wc -c < big',
      `python3 -c "x = bytearray(200000000)" 2>&1 | tail -1`,
    ].join('; ');
    const { stdout } = payload(await shellTool({ command }, workspace.paths, testCall(), small));
    expect(stdout).toContain('1048576');
    expect(stdout).toContain('MemoryError');
  });

  it('limits the processor time of commands, though not of what stays in the background', async () => {
    const small = new ShellHost({ environment: shellEnvironment({}), limits: { cpuSeconds: 1 } });
    const endless = 'ulimit -t; while :; do :; done';
    const outcome = await shellTool({ command: endless }, workspace.paths, testCall(), small);
    expect(payload(outcome)).toMatchObject({ exit_code: 152, stdout: '1\n' });
    const background = { command: 'ulimit -t', run_in_background: true };
    const { shell_id: id } = payload(await shellTool(background, workspace.paths, testCall(), small));
    const { signal } = new AbortController();
    const { output } = await small.sessions.read(String(id), { waitMs: 30_000, signal });
    expect(output).toBe('unlimited\n');
    await small.killAll(100);
  });

  it('gives a terminal when asked', async () => {
    expect(payload(await run({ command: 'tty', tty: true })).stdout).toContain('/dev/');
  });

  describe('in the background', () => {
    const session = async (args: object): Promise<Record<string, unknown>> =>
      (await shellSessionTool(args, testCall(), shell)).result as Record<string, unknown>;
    const start = async (command: string): Promise<string> => {
      const outcome = await run({ command, run_in_background: true });
      expect(outcome.result).toEqual({
        kind: 'shell',
        command,
        cwd: workspace.root,
        shell_id: expect.stringMatching(/^sh_[0-9a-f]{8}$/),
        stdout: '',
        stderr: '',
      });
      return payload(outcome)['shell_id'] as string;
    };

    it('talks with a running command and reads on from the cursor', async () => {
      const shellId = await start('echo ready; while read line; do echo "got $line"; done; echo bye');
      const first = await session({ operation: 'read', shell_id: shellId, wait_ms: 30_000 });
      expect(first).toMatchObject({ output: 'ready\n', status: 'running', exit_code: null });
      await session({ operation: 'write', shell_id: shellId, input: 'x' });
      const cursor = first['cursor'] as number;
      const second = await session({ operation: 'read', shell_id: shellId, cursor, wait_ms: 30_000 });
      expect(second).toMatchObject({ kind: 'shell_session', operation: 'read', output: 'got x\n' });
      const filtered = await session({ operation: 'read', shell_id: shellId, filter: '^got' });
      expect(filtered['output']).toBe('got x');
      expect(await session({ operation: 'kill', shell_id: shellId })).toMatchObject({ status: 'exited' });
      await expect(session({ operation: 'write', shell_id: shellId, input: 'y' })).rejects.toThrow('exited');
    });

    it('shows the exit code of an ended one and lists all', async () => {
      const shellId = await start('exit 7');
      await session({ operation: 'read', shell_id: shellId, wait_ms: 30_000 });
      const list = await session({ operation: 'list' });
      expect(list['sessions']).toEqual([{ shell_id: shellId, command: 'exit 7', status: 'exited', exit_code: 7 }]);
    });

    it('ends a filter that would backtrack for ever', async () => {
      const shellId = await start('echo "$(printf "a%.0s" $(seq 40))b"; sleep 30');
      await session({ operation: 'read', shell_id: shellId, wait_ms: 30_000 });
      await expect(session({ operation: 'read', shell_id: shellId, filter: '^(a+)+$' })).rejects.toThrow('filter');
    });

    it('names an unknown shell', async () => {
      await expect(session({ operation: 'read', shell_id: 'sh_00000000' })).rejects.toThrow('No shell sh_00000000');
    });

    it('ends with the host', async () => {
      const shellId = await start('echo $$ > pid; sleep 300');
      const pid = path.join(workspace.root, 'pid');
      while (!existsSync(pid) || readFileSync(pid, 'utf8') === '') await delay(5);
      await shell.killAll(200);
      expect(await treeMembers({ marker: shellId })).toEqual([]);
      expect(readFileSync(pid, 'utf8')).toMatch(/^\d+\n$/);
    });
  });
});

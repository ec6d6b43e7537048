import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { SandboxGrant, sandboxdPb } from '@margay/contracts';
import { isMargayError } from '@margay/errors';
import { shellEnvironment } from '@margay/toolbox';
import { Sandbox, type SandboxOptions } from './sandbox';

let folder: string;
let sandbox: Sandbox;

const open = (more: Partial<SandboxOptions> = {}): Promise<Sandbox> =>
  Sandbox.open({
    stateFolder: path.join(folder, 'state'),
    root: path.join(folder, 'workspace'),
    allowedRoots: [],
    spillFolder: path.join(folder, 'results'),
    isolation: 'none',
    environment: shellEnvironment({ PATH: process.env['PATH'] }, 's1'),
    limits: {},
    ...more,
  });

const grantOf = (more: Partial<SandboxGrant> = {}): SandboxGrant => ({
  v: 1,
  sandboxId: 'sb1',
  tenantId: 't1',
  sessionId: 's1',
  runId: 'r1',
  storeGeneration: 0,
  epoch: 1,
  scope: ['execute', 'admin'],
  ...more,
});

const shell = (command: string, more: Partial<sandboxdPb.ExecuteRequest> = {}): sandboxdPb.ExecuteRequest => ({
  callId: 'c1',
  toolId: 'aider_shell_tool',
  argsJson: JSON.stringify({ command }),
  argHash: command,
  effect: 'unkeyed',
  timeoutMs: 0,
  fromOffset: 0,
  incarnation: '',
  ...more,
});

interface Heard {
  reattached?: boolean;
  output: string;
  offsets: number[];
  finished?: sandboxdPb.Finished;
  wrongIncarnation?: string;
}

async function hear(
  request: sandboxdPb.ExecuteRequest,
  { grant = grantOf(), signal = new AbortController().signal, heard = { output: '', offsets: [] } as Heard } = {},
): Promise<Heard> {
  for await (const { message } of sandbox.execute(request, grant, signal)) {
    if (message?.$case === 'started') heard.reattached = message.value.reattached;
    if (message?.$case === 'finished') heard.finished = message.value;
    if (message?.$case === 'wrongIncarnation') heard.wrongIncarnation = message.value.incarnation;
    if (message?.$case !== 'output') continue;
    heard.output += Buffer.from(message.value.bytes).toString();
    heard.offsets.push(message.value.offset);
  }
  return heard;
}

const stdoutOf = (heard: Heard): string =>
  (JSON.parse(heard.finished?.resultJson ?? '{}') as { stdout: string }).stdout;

/** A command goes on once `letGo` was called. */
const UNTIL_GO = 'while [ ! -e go ]; do sleep 0.02; done';
const letGo = (): void => writeFileSync(path.join(folder, 'workspace', 'go'), '');

async function refusal(work: Promise<unknown>): Promise<string> {
  return work.then(
    () => 'accepted',
    (error: unknown) => (isMargayError(error) ? `${error.code} ${error.reason}` : String(error)),
  );
}

beforeEach(async () => {
  folder = mkdtempSync(path.join(tmpdir(), 'margay-sandbox-'));
  rmSync(path.join(folder, 'workspace'), { recursive: true, force: true });
  await import('node:fs/promises').then((fs) => fs.mkdir(path.join(folder, 'workspace')));
  sandbox = await open();
});
afterEach(async () => {
  await sandbox.close(100);
  rmSync(folder, { recursive: true, force: true });
});

describe('a call', () => {
  it('streams its output and returns the stored result when it is repeated', async () => {
    const request = shell('echo x >> count; echo hello');
    const first = await hear(request);
    expect(first).toMatchObject({ reattached: false, output: 'hello\n', finished: { status: 'ok', exitCode: 0 } });
    const second = await hear(request);
    expect(second).toMatchObject({ reattached: true, finished: first.finished });
    expect(readFileSync(path.join(folder, 'workspace/count'), 'utf8')).toBe('x\n');
  });

  it('returns the stored result also after the daemon was restarted', async () => {
    const request = shell('echo once >> count; echo hello');
    const first = await hear(request);
    await sandbox.close(100);
    const { incarnation } = sandbox;
    sandbox = await open();
    expect(sandbox.incarnation).toBe(incarnation);
    expect((await hear(request)).finished).toEqual(first.finished);
    expect(readFileSync(path.join(folder, 'workspace/count'), 'utf8')).toBe('once\n');
  });

  it('is attached to by a second caller, from the offset it names', async () => {
    const request = shell('echo one; read -t 60 < gate; echo two; echo x >> count');
    const { execFileSync } = await import('node:child_process');
    execFileSync('mkfifo', [path.join(folder, 'workspace/gate')]);
    const heard: Heard = { output: '', offsets: [] };
    const first = hear(request, { heard });
    while (heard.output === '') await delay(2);
    const late: Heard = { output: '', offsets: [] };
    const second = hear({ ...request, fromOffset: 2 }, { heard: late });
    while (late.output === '') await delay(2);
    writeFileSync(path.join(folder, 'workspace/gate'), 'go\n');
    expect(await second).toMatchObject({ reattached: true, output: 'e\ntwo\n', finished: { exitCode: 0 } });
    expect((await first).output).toBe('one\ntwo\n');
    expect(readFileSync(path.join(folder, 'workspace/count'), 'utf8')).toBe('x\n');
  });

  it('goes on when its caller leaves', async () => {
    const request = shell(`echo up; ${UNTIL_GO}; echo done > flag; echo late`);
    const left = new AbortController();
    const heard: Heard = { output: '', offsets: [] };
    const first = hear(request, { signal: left.signal, heard });
    while (heard.output === '') await delay(2);
    left.abort(new Error('gone'));
    await expect(first).rejects.toThrow('gone');
    letGo();
    expect(stdoutOf(await hear(request))).toBe('up\nlate\n');
  });

  it('is refused with other arguments under the same id, while it runs and afterwards', async () => {
    const heard: Heard = { output: '', offsets: [] };
    const running = hear(shell(`echo up; ${UNTIL_GO}`), { heard });
    while (heard.output === '') await delay(2);
    expect(await refusal(hear(shell('echo other')))).toBe('ALREADY_EXISTS call_args_mismatch');
    letGo();
    await running;
    expect(await refusal(hear(shell('echo other')))).toBe('ALREADY_EXISTS call_args_mismatch');
  });

  it('does not run in another incarnation than asked for', async () => {
    const heard = await hear(shell('echo x > ran', { incarnation: 'f'.repeat(32) }));
    expect(heard).toEqual({ output: '', offsets: [], wrongIncarnation: sandbox.incarnation });
    expect((await hear(shell('ls', { incarnation: sandbox.incarnation }))).output).toBe('');
  });

  it('ends when it has used the processor time of its profile, and when it takes longer than that allows', async () => {
    await sandbox.close(0);
    sandbox = await open({ limits: { cpuSeconds: 1 }, wallMs: 300 });
    const { finished: slow } = await hear(shell('sleep 60', { timeoutMs: 60_000 }));
    expect(slow).toMatchObject({ status: 'timed_out', limitHit: 'wall_time' });
    await sandbox.close(0);
    sandbox = await open({ limits: { cpuSeconds: 1 } });
    const { finished } = await hear(shell('while :; do :; done', { callId: 'c2' }));
    expect(finished).toMatchObject({ status: 'ok', exitCode: 152, limitHit: 'cpu' });
  });

  it('ends at its outer time-out with the output so far', async () => {
    let timeoutMs = 300;
    const ask = () => hear(shell('echo early; sleep 600', { timeoutMs, callId: `c${timeoutMs}` }));
    let heard = await ask();
    // On a busy machine the time may be over before the command says a word.
    for (; heard.output === ''; heard = await ask()) timeoutMs *= 2;
    expect(heard.finished).toMatchObject({ status: 'timed_out', limitHit: 'wall_time' });
    expect(JSON.parse(heard.finished?.resultJson ?? '')).toBe(
      `Tool 'aider_shell_tool' timed out after ${timeoutMs / 1_000}s\nOutput so far:\nearly\n`,
    );
  });

  it('streams a bounded part of a huge output and keeps all of it in a file', async () => {
    const heard = await hear(shell('head -c 3000000 /dev/zero | tr "\\0" x'));
    expect(heard.output.length).toBe(1024 * 1024);
    expect(heard.offsets[0]).toBe(0);
    const result = JSON.parse(heard.finished?.resultJson ?? '') as Record<string, string>;
    expect(result).toMatchObject({ stdout_bytes: 3_000_000, stdout_file: path.join(folder, 'results/c1.txt') });
    const read = { ...shell(''), callId: 'c2', toolId: 'read_file', effect: 'pure', argHash: 'r' };
    const file = await hear({ ...read, argsJson: JSON.stringify({ path: result['stdout_file'], max_bytes: 10 }) });
    expect(JSON.parse(file.finished?.resultJson ?? '')).toMatchObject({ kind: 'file' });
  });

  it('that only reads leaves no trace in the journal and answers unchanged', async () => {
    writeFileSync(path.join(folder, 'workspace/a.txt'), 'text');
    const read = { ...shell('r'), toolId: 'read_file', effect: 'pure', argsJson: '{"path":"a.txt"}' };
    const { finished } = await hear(read);
    expect(finished?.fileVersion).toMatchObject({ size: 4 });
    const again = await hear({
      ...read,
      callId: 'c2',
      ...(finished?.fileVersion && { ifUnchanged: finished.fileVersion }),
    });
    expect(again.finished).toMatchObject({ unchanged: true, resultJson: '""' });
    expect(readFileSync(path.join(folder, 'state/journal.ndjson'), 'utf8')).toBe('');
  });

  it('can be cancelled though it ignores signals, is stored as cancelled, and is finished afterwards', async () => {
    const heard: Heard = { output: '', offsets: [] };
    const request = shell('trap "" TERM; echo up; sleep 600; sleep 600');
    const running = hear(request, { heard });
    while (heard.output === '') await delay(2);
    expect(await sandbox.cancelCall({ callId: 'c1', graceMs: 200 }, grantOf())).toEqual({ state: 'cancelled' });
    expect((await running).finished?.status).toBe('cancelled');
    expect((await hear(request)).finished?.status).toBe('cancelled');
    expect(await sandbox.cancelCall({ callId: 'c1', graceMs: 0 }, grantOf())).toEqual({ state: 'finished' });
    expect(await sandbox.cancelCall({ callId: 'cx', graceMs: 0 }, grantOf())).toEqual({ state: 'not_found' });
  });

  it('is unknown to the sandbox again once its run is forgotten', async () => {
    await hear(shell('echo x >> count'));
    await hear(shell('echo x >> count', { callId: 'c2' }), { grant: grantOf({ runId: 'r2' }) });
    await sandbox.forget({ callIds: [], runId: 'r1' }, grantOf());
    await hear(shell('echo x >> count'));
    await hear(shell('echo x >> count', { callId: 'c2' }));
    expect(readFileSync(path.join(folder, 'workspace/count'), 'utf8')).toBe('x\nx\nx\n');
  });
});

describe('a daemon whose files a command damaged', () => {
  const state = (name: string): string => path.join(folder, 'state', name);

  it('starts another incarnation when its journal is gone, so that nothing of it runs again', async () => {
    await hear(shell('echo x >> effect'));
    const { incarnation } = sandbox;
    await sandbox.close(0);
    rmSync(state('journal.ndjson'));
    sandbox = await open();
    const heard = await hear(shell('echo x >> effect', { incarnation }));
    expect(heard.wrongIncarnation).toBe(sandbox.incarnation);
    expect(readFileSync(path.join(folder, 'workspace/effect'), 'utf8')).toBe('x\n');
  });

  it('starts another incarnation when its state cannot be read', async () => {
    const { incarnation } = sandbox;
    await sandbox.close(0);
    writeFileSync(state('state.json'), 'garbage');
    sandbox = await open();
    expect(sandbox.incarnation).not.toBe(incarnation);
    expect((await hear(shell('echo fine'))).output).toBe('fine\n');
  });

  it('counts output that it can store nowhere, and goes on', async () => {
    writeFileSync(path.join(folder, 'results'), 'not a folder');
    const command = 'head -c 3000000 /dev/zero | tr "\\0" x; echo end';
    const { finished } = await hear(shell(command));
    const result = JSON.parse(finished?.resultJson ?? '{}') as { stdout: string; stdout_bytes: number };
    expect(result).toMatchObject({ stdout: expect.stringMatching(/end\n$/), stdout_bytes: 3_000_004 });
    expect((await hear(shell('echo next', { callId: 'c2' }))).output).toBe('next\n');
  });
});

describe('epochs', () => {
  it('refuse a lower one, also after a restart', async () => {
    await hear(shell('true'), { grant: grantOf({ epoch: 5 }) });
    const stale = grantOf({ epoch: 4 });
    expect(await refusal(hear(shell('true', { callId: 'c2' }), { grant: stale }))).toBe(
      'FAILED_PRECONDITION stale_epoch',
    );
    await sandbox.close(100);
    sandbox = await open();
    expect(await refusal(hear(shell('true', { callId: 'c2' }), { grant: stale }))).toBe(
      'FAILED_PRECONDITION stale_epoch',
    );
    expect(await refusal(sandbox.cancelCall({ callId: 'c1', graceMs: 0 }, stale))).toContain('stale_epoch');
  });

  it('of a newer store generation win over any number', async () => {
    await hear(shell('true'), { grant: grantOf({ epoch: 9 }) });
    await hear(shell('true', { callId: 'c2' }), { grant: grantOf({ epoch: 1, storeGeneration: 1 }) });
    expect(await refusal(hear(shell('true'), { grant: grantOf({ epoch: 10 }) }))).toContain('stale_epoch');
  });

  it('cut the streams of an older one, while its call goes on for the new owner', async () => {
    const heard: Heard = { output: '', offsets: [] };
    const request = shell(`echo up; ${UNTIL_GO}; echo done`);
    const old = refusal(hear(request, { heard }));
    while (heard.output === '') await delay(2);
    const now: Heard = { output: '', offsets: [] };
    const taken = hear(request, { grant: grantOf({ epoch: 2 }), heard: now });
    expect(await old).toBe('FAILED_PRECONDITION stale_epoch');
    while (now.output === '') await delay(2);
    letGo();
    expect(await taken).toMatchObject({ reattached: true, output: 'up\ndone\n' });
  });

  it('are raised by a fence, which kills what runs when told to', async () => {
    const heard: Heard = { output: '', offsets: [] };
    const request = shell('echo up; sleep 60');
    const old = refusal(hear(request, { heard }));
    while (heard.output === '') await delay(2);
    await sandbox.fence({ epoch: 3, kill: true, background: false }, grantOf());
    expect(await old).toContain('stale_epoch');
    expect(await refusal(hear(shell('true', { callId: 'c2' }), { grant: grantOf({ epoch: 2 }) }))).toContain(
      'stale_epoch',
    );
    expect((await hear(request, { grant: grantOf({ epoch: 3 }) })).finished?.status).toBe('killed');
  });
});

describe('a full disk', () => {
  const noSpace = (): Promise<never> => Promise.reject(Object.assign(new Error('no space'), { code: 'ENOSPC' }));
  const journalHandle = (): FileHandle =>
    Reflect.get(Reflect.get(sandbox, 'journal') as object, 'handle') as FileHandle;

  it('lets nothing run that cannot be written down, and says so', async () => {
    const append = jest.spyOn(journalHandle(), 'appendFile').mockImplementation(noSpace);
    const { finished } = await hear(shell('echo x >> never'));
    expect(finished).toMatchObject({ status: 'error', limitHit: 'disk' });
    expect(finished?.resultJson).toMatch(/journal_failed: 'aider_shell_tool' was not run.*its disk is full/);
    append.mockRestore();
    expect(stdoutOf(await hear(shell('cat never; echo x >> never')))).toMatch(/No such file/);
  });

  it('does not make a call run twice whose result cannot be written down', async () => {
    const append = jest.spyOn(journalHandle(), 'appendFile');
    const running = hear(shell('echo x >> count; while [ ! -e go ]; do sleep 0.02; done; cat count'));
    while (append.mock.calls.length === 0) await delay(1);
    await append.mock.results[0]?.value;
    append.mockImplementation(noSpace);
    writeFileSync(path.join(folder, 'workspace', 'go'), '');
    expect(stdoutOf(await running)).toBe('x\n');
    append.mockRestore();
    const request = shell('echo x >> count; while [ ! -e go ]; do sleep 0.02; done; cat count');
    expect(await hear(request)).toMatchObject({ reattached: true, finished: { status: 'ok' } });
    expect(readFileSync(path.join(folder, 'workspace', 'count'), 'utf8')).toBe('x\n');
  });
});

describe('a fence that ends what a cancelled run left', () => {
  const isAlive = (pid: string): boolean => {
    try {
      return !/^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
    } catch {
      return false; // there is no such process
    }
  };
  const pids = (): string[] =>
    readFileSync(path.join(folder, 'workspace', 'pids'), 'utf8')
      .trim()
      .split('\n');

  const callOf = (epoch: number, index: number, command: string, more: object = {}): sandboxdPb.ExecuteRequest =>
    shell(command, { callId: `s1.${epoch}.1.${index}`, argsJson: JSON.stringify({ command, ...more }) });

  it('kills background shells and daemons of its calls, and spares those of later runs', async () => {
    await hear(callOf(1, 0, 'echo $$ >> pids; exec sleep 300', { run_in_background: true }));
    await hear(
      callOf(
        1,
        1,
        '(setsid sh -c \'trap "" TERM; echo $$ >> pids; while :; do sleep 0.1; done\' &) ; until [ $(wc -l < pids) = 2 ]; do sleep 0.02; done',
      ),
    );
    const running = hear(callOf(1, 2, 'setsid sh -c \'trap "" TERM; echo $$ >> pids; sleep 300\' & sleep 300')).catch(
      (error: { reason: string }) => error.reason,
    );
    const count = (): number => (existsSync(path.join(folder, 'workspace', 'pids')) ? pids().length : 0);
    while (count() < 3) await delay(5);
    await hear(callOf(7, 0, 'echo $$ >> later; exec sleep 300', { run_in_background: true }), {
      grant: grantOf({ epoch: 7 }),
    });
    const later = (): string => readFileSync(path.join(folder, 'workspace', 'later'), 'utf8').trim();
    while (!existsSync(path.join(folder, 'workspace', 'later')) || later() === '') await delay(5);
    await sandbox.fence({ epoch: 5, kill: true, background: true }, grantOf({ epoch: 7 }));
    expect(pids().filter(isAlive)).toEqual([]);
    expect(isAlive(later())).toBe(true);
    expect(await running).toBe('stale_epoch');
    await sandbox.fence({ epoch: 8, kill: true, background: true }, grantOf({ epoch: 8 }));
    expect(isAlive(later())).toBe(false);
  });

  it('leaves background shells where a run has only ended', async () => {
    await hear(callOf(1, 0, 'echo $$ >> pids; exec sleep 300', { run_in_background: true }));
    while (!existsSync(path.join(folder, 'workspace', 'pids')) || pids()[0] === '') await delay(5);
    await sandbox.fence({ epoch: 5, kill: true, background: false }, grantOf());
    expect(pids().filter(isAlive)).toHaveLength(1);
  });
});

describe('grants', () => {
  it('bind the sandbox to the first session for ever', async () => {
    await sandbox.hello(grantOf());
    const foreign = grantOf({ sessionId: 's2', epoch: 9 });
    expect(await refusal(sandbox.hello(foreign))).toBe('PERMISSION_DENIED sandbox_bound');
    await sandbox.close(100);
    sandbox = await open();
    expect(await refusal(hear(shell('true'), { grant: foreign }))).toBe('PERMISSION_DENIED sandbox_bound');
  });

  it('open only what their scope names', async () => {
    const narrow = grantOf({ scope: ['files'] });
    expect(await refusal(hear(shell('true'), { grant: narrow }))).toBe('PERMISSION_DENIED grant_scope');
    expect(await refusal(sandbox.fence({ epoch: 1, kill: false, background: false }, narrow))).toBe(
      'PERMISSION_DENIED grant_scope',
    );
  });
});

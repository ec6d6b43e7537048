import { execFileSync, spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ToolDescriptor } from '@margay/contracts';
import { KeyRing } from '@margay/platform';
import { ExecutorFixture, nothingHeard } from '../executor-fixture';

let fixture: ExecutorFixture;

beforeAll(async () => {
  fixture = await new ExecutorFixture().start();
});
afterAll(() => fixture.remove());

/** Ends the daemon of a session as a crash would. */
function killDaemon(sessionId: string): void {
  for (const name of readdirSync(path.join(fixture.home, 'sandboxes'))) {
    const record = JSON.parse(readFileSync(path.join(fixture.home, 'sandboxes', name, 'record.json'), 'utf8'));
    if (record.sessionId !== sessionId) continue;
    for (const { pid } of record.processes) execFileSync('kill', ['-9', String(pid)]);
  }
}

describe('Executor', () => {
  it('lists descriptors that the contract accepts', async () => {
    const { toolsJson, isolation } = await fixture.client.listTools({}, fixture.principal);
    expect(isolation).toBe(fixture.isolation);
    const tools = toolsJson.map((text) => ToolDescriptor.parse(JSON.parse(text)));
    expect(tools.map((tool) => tool.tool_id)).toContain('aider_shell_tool');
  });

  it('runs, streams, and returns the stored result to a retry', async () => {
    const first = await fixture.shell('echo hi; echo x >> count', {}, { callId: 's1.1.0.a' });
    expect(first).toMatchObject({ output: 'hi\n', reattached: false, finished: { status: 'ok', exitCode: 0 } });
    const again = await fixture.shell('echo hi; echo x >> count', {}, { callId: 's1.1.0.a' });
    expect(again).toMatchObject({ reattached: true, finished: first.finished, incarnation: first.incarnation });
    expect((await fixture.shell('cat count')).output).toBe('x\n');
    const other = fixture.shell('echo other', {}, { callId: 's1.1.0.a' });
    await expect(other).rejects.toMatchObject({ code: 'ALREADY_EXISTS', reason: 'call_args_mismatch' });
  });

  it('edits, reads, and answers unchanged', async () => {
    const edit = { file_path: 'dir/a.txt', old_string: '', new_string: 'one\n' };
    expect((await fixture.call('file_edit_tool', edit)).result).toMatchObject({ kind: 'diff', files: ['dir/a.txt'] });
    const read = await fixture.call('read_file', { path: 'dir/a.txt' });
    expect(read.result).toEqual({ kind: 'file', path: 'dir/a.txt', text: '1\tone', total_lines: 1 });
    const { fileVersion } = read.finished ?? {};
    const again = await fixture.call(
      'read_file',
      { path: 'dir/a.txt' },
      {},
      fileVersion ? { ifUnchanged: fileVersion } : {},
    );
    expect(again.finished).toMatchObject({ unchanged: true, resultJson: '""' });
  });

  it('makes tool failures results, and refuses unknown tools and missing grants', async () => {
    const failed = await fixture.call('read_file', { path: '/etc/shadow' });
    expect(failed.finished).toMatchObject({ status: 'error' });
    await expect(fixture.call('nope', {})).rejects.toMatchObject({ reason: 'unknown_tool' });
    const stream = fixture.client.execute(
      { callId: 'x', toolId: 'read_file', argsJson: '{}', timeoutMs: 0, fromOffset: 0, incarnation: '' },
      fixture.principal,
    );
    await expect(stream[Symbol.asyncIterator]().next()).rejects.toMatchObject({ reason: 'grant_missing' });
  });

  it('passes another incarnation back without running', async () => {
    const heard = await fixture.shell('echo x > never', {}, { incarnation: '0'.repeat(32) });
    expect(heard).toMatchObject({ wrongIncarnation: expect.stringMatching(/^[0-9a-f]{32}$/) });
    expect((await fixture.shell('ls never')).finished?.exitCode).toBe(2);
  });

  it('cancels a running call', async () => {
    const callId = 's1.1.0.long';
    const running = fixture.shell('sleep 100', {}, { callId });
    for (;;) {
      const { state } = await fixture.client.cancelCall({ callId, graceMs: 0 }, { grant: await fixture.token() });
      if (state === 'cancelled') break;
      await delay(5);
    }
    expect((await running).finished?.status).toBe('cancelled');
    expect(await fixture.client.cancelCall({ callId, graceMs: 0 }, fixture.principal)).toEqual({ state: 'finished' });
  });

  it('fences a session: running calls end, older epochs are refused, newer ones go on', async () => {
    const grant = { sessionId: 'f1' };
    await fixture.shell('true', grant);
    const heard = nothingHeard();
    const running = fixture
      .shell('echo up; sleep 100', grant, {}, heard)
      .catch((error: { reason: string }) => error.reason);
    while (heard.output === '') await delay(5);
    await fixture.client.fenceSession({ sessionId: 'f1', epoch: 5, kill: true, background: false }, fixture.principal);
    expect(await running).toBe('stale_epoch');
    await expect(fixture.shell('true', { ...grant, epoch: 4 })).rejects.toMatchObject({ reason: 'stale_epoch' });
    expect((await fixture.shell('echo on', { ...grant, epoch: 5 })).output).toBe('on\n');
    await fixture.client.release({ sessionId: 'f1' }, fixture.principal);
    await expect(fixture.shell('true', { ...grant, epoch: 4 })).rejects.toMatchObject({ reason: 'stale_epoch' });
  });

  it('lets nobody but session fence or release', async () => {
    const keys = await KeyRing.load(fixture.keysFolder, 'tool-executor');
    const grantOnly = { grant: await fixture.token() };
    expect(keys.service).toBe('tool-executor');
    const attempt = fixture.client.release({ sessionId: 's1' }, grantOnly);
    await expect(attempt).rejects.toMatchObject({ reason: 'principal_missing' });
  });

  it('claims again on the same journal when the daemon dies, and says unknown of what was running', async () => {
    const grant = { sessionId: 'k1' };
    const { incarnation } = await fixture.shell('echo done >> log', grant, { callId: 'k1.1.0.0' });
    const running = fixture.shell('echo x >> count; sleep 100', grant, { callId: 'k1.1.0.1' });
    while ((await fixture.shell('cat count', grant)).output !== 'x\n') await delay(5);
    killDaemon('k1');
    expect((await running).finished).toMatchObject({ status: 'unknown', limitHit: 'restart' });
    const again = await fixture.shell('echo done >> log', grant, { callId: 'k1.1.0.0' });
    expect(again).toMatchObject({ reattached: true, incarnation });
    expect((await fixture.shell('cat log count', grant)).output).toBe('done\nx\n');
  });

  it('starts a new incarnation after release and keeps the workspace', async () => {
    const grant = { sessionId: 'r1' };
    const { incarnation } = await fixture.shell('echo kept > file', grant);
    await fixture.client.release({ sessionId: 'r1' }, fixture.principal);
    const after = await fixture.shell('cat file', grant);
    expect(after.output).toBe('kept\n');
    expect(after.incarnation).not.toBe(incarnation);
  });

  it('shares one claim among calls that come at once', async () => {
    const heard = await Promise.all(Array.from({ length: 8 }, () => fixture.shell('echo hi', { sessionId: 'c1' })));
    expect(new Set(heard.map(({ incarnation }) => incarnation)).size).toBe(1);
  });

  it('takes over the sandboxes of a crashed executor and attaches to what runs in them', async () => {
    const grant = { sessionId: 'o1' };
    const callId = 'o1.1.0.0';
    const command = 'echo x >> count; echo up; while [ ! -e go ]; do sleep 0.05; done; echo done';
    // The first caller is never answered: its executor is gone.
    void fixture.shell(command, grant, { callId }).catch(() => undefined);
    while ((await fixture.shell('cat count', grant)).output !== 'x\n') await delay(5);
    fixture.crash();
    await fixture.start();
    const heard = nothingHeard();
    const attached = fixture.shell(command, grant, { callId }, heard);
    while (heard.output === '') await delay(5);
    await fixture.shell('touch go', grant);
    expect(await attached).toMatchObject({ reattached: true, output: 'up\ndone\n', finished: { exitCode: 0 } });
    expect((await fixture.shell('cat count', grant)).output).toBe('x\n');
  });

  it('ends sandboxes on shutdown and finds their journals afterwards', async () => {
    const before = await fixture.shell('echo x >> once', { sessionId: 'e1' }, { callId: 'e1.1.0.0' });
    await fixture.stop();
    expect(spawnSync('pgrep', ['-f', fixture.home], { encoding: 'utf8' }).stdout).toBe('');
    await fixture.start();
    const after = await fixture.shell('echo x >> once', { sessionId: 'e1' }, { callId: 'e1.1.0.0' });
    expect(after).toMatchObject({ reattached: true, incarnation: before.incarnation, finished: before.finished });
  });
});

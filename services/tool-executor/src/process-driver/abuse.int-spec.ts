import { spawnSync } from 'node:child_process';
import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { ExecutorFixture } from '../executor-fixture';
import { sandboxIdOf } from './sandbox-folder';

const canTry =
  process.getuid?.() === 0 && spawnSync('bwrap', ['--unshare-all', '--ro-bind', '/', '/', 'true']).status === 0;
const suite = canTry ? describe : describe.skip;

/** What a hostile command tries, from inside a real sandbox. */
suite(`a hostile command${canTry ? '' : ' (skipped: needs root and bubblewrap)'}`, () => {
  let fixture: ExecutorFixture;
  beforeAll(async () => {
    fixture = await new ExecutorFixture().start();
  });
  afterAll(() => fixture.remove());
  const out = async (command: string, sessionId: string): Promise<string> => {
    const heard = await fixture.shell(command, { sessionId });
    return String(heard.result['stdout'] ?? heard.result['text']);
  };

  it('reaches no key ring, no kernel interface that namespaces do not cover, and no vsock', async () => {
    const script = `
import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
calls = {"x86_64": dict(keyctl=250, add_key=248, bpf=321, perf=298, userfaultfd=323, mount=165, setns=308),
         "aarch64": dict(keyctl=219, add_key=217, bpf=280, perf=241, userfaultfd=282, mount=40, setns=268)}
import os
for name, number in calls[os.uname().machine].items():
    ctypes.set_errno(0)
    print(name, libc.syscall(number, 0, 0, 0, 0, 0), errno.errorcode.get(ctypes.get_errno()))
print("io_uring", libc.syscall(425, 8, 0), errno.errorcode.get(ctypes.get_errno()))
for family in (17, 38, 40):
    try:
        socket.socket(family, socket.SOCK_STREAM)
        print("family", family, "opened")
    except OSError as error:
        print("family", family, errno.errorcode.get(error.errno))
for family in (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK):
    socket.socket(family, socket.SOCK_DGRAM).close()
print("usual ones open")`;
    const lines = (await out(`python3 - <<'END'\n${script}\nEND`, 'k1')).trim().split('\n');
    for (const name of ['keyctl', 'add_key', 'bpf', 'perf', 'userfaultfd', 'mount', 'setns'])
      expect(lines).toContain(`${name} -1 EPERM`);
    expect(lines).toContain('io_uring -1 ENOSYS');
    for (const family of [17, 38, 40]) expect(lines).toContain(`family ${family} EAFNOSUPPORT`);
    expect(lines).toContain('usual ones open');
  });

  it('cannot fill the memory of the machine with files below /dev', async () => {
    const text = await out(
      'head -c 400M /dev/zero > /dev/shm/x; stat -c %s /dev/shm/x; touch /dev/x; rm /dev/shm/x',
      'k1',
    );
    expect(text).toMatch(/^268435456$/m);
    expect(text).toContain("touch: cannot touch '/dev/x': Read-only file system");
  });

  it('weighs less than the services when it keeps all processors busy', async () => {
    await out('true', 'k1');
    const own = /^\d+:cpu(?:,cpuacct)?:(.*)$/m.exec(readFileSync('/proc/self/cgroup', 'utf8'))?.[1];
    const group = path.join('/sys/fs/cgroup/cpu', own ?? '', `margay-${sandboxIdOf('k1')}`);
    const canLimit = own !== undefined && !spawnSync('mkdir', [`${group}-probe`]).status;
    if (canLimit) rmdirSync(`${group}-probe`);
    expect(existsSync(group)).toBe(canLimit);
    if (!canLimit) return;
    expect(readFileSync(path.join(group, 'cpu.shares'), 'utf8')).toBe('512\n');
    expect(readFileSync(path.join(group, 'cgroup.procs'), 'utf8')).not.toBe('');
  });

  it('does not outlive the end of its call by leaving the session, its parent and its environment', async () => {
    const length = `5000.${process.pid}`;
    const command = `setsid env -i sh -c '(setsid env -i sleep ${length} >/dev/null 2>&1 &) &' & sleep 60`;
    const heard = await fixture.call('aider_shell_tool', { command, timeout: 1 }, { sessionId: 'k1' });
    expect(heard.result).toMatchObject({ timed_out: true });
    expect(spawnSync('pgrep', ['-xf', `sleep ${length}`], { encoding: 'utf8' }).stdout).toBe('');
  });

  it.each([
    ['garbage in its state', 'echo garbage > /margay/state/state.json'],
    ['a higher epoch', 'sed -i \'s/"epoch":1/"epoch":999999/\' /margay/state/state.json'],
    ['another session', 'sed -i \'s/"sessionId":"/&x/\' /margay/state/state.json'],
    ['no journal', 'rm /margay/state/journal.ndjson'],
    ['a folder as its socket', 'rm /margay/run/s; mkdir -p /margay/run/s/x'],
    ['folders that nobody may enter', 'chmod 000 /margay/state /margay/run /margay/results ~ /tmp'],
  ])('does not end its session by leaving the daemon %s, and is not run twice', async (title, damage) => {
    const grant = { sessionId: `d${title.length}` };
    const { incarnation = '' } = await fixture.shell('true', grant);
    // The daemon is the first process inside; all of them are of one user.
    const command = `echo x >> n; ${damage}; kill -9 2; sleep 5`;
    const heard = await fixture.shell(command, grant, { incarnation });
    expect(heard.finished?.status).toBe('unknown');
    expect(await out('cat n', grant.sessionId)).toBe('x\n');
  });

  it('that stops the daemon ends when it is cancelled, and the session goes on', async () => {
    const length = `6000.${process.pid}`;
    const call = { callId: 'st.1.0.1' };
    const running = fixture.shell(`kill -STOP 2; sleep ${length}`, { sessionId: 'st' }, call);
    const isRunning = (): boolean => spawnSync('pgrep', ['-xf', `sleep ${length}`]).status === 0;
    while (!isRunning()) await delay(50);
    const grant = await fixture.token({ sessionId: 'st' });
    expect(await fixture.client.cancelCall({ ...call, graceMs: 500 }, { grant })).toEqual({ state: 'cancelled' });
    expect(isRunning()).toBe(false);
    expect((await running).finished?.status).toBe('unknown');
    expect(await out('echo alive', 'st')).toBe('alive\n');
  });

  it('finds no other session by naming its folder as its own', async () => {
    await out('echo secret > mine', 'v1');
    const workspace = { kind: 'path' as const, path: path.join(fixture.home, 'workspaces/v1') };
    await expect(fixture.shell('cat mine', { sessionId: 'v2', workspace })).rejects.toMatchObject({
      reason: 'workspace_refused',
    });
    expect(await out('cat mine', 'v1')).toBe('secret\n');
  });

  it('shares a copy with another session of its tenant: both work, as one user', async () => {
    const folder = path.join(fixture.home, 'workspaces', 'shared copy\nüñí');
    mkdirSync(folder);
    writeFileSync(path.join(folder, 'a'), '');
    const workspace = { kind: 'path' as const, path: folder };
    await fixture.shell('git init -q . && echo 1 >> a', { sessionId: 'c1', workspace });
    await fixture.shell('echo 2 >> a && git status --short', { sessionId: 'c2', workspace });
    const heard = await fixture.shell('echo 3 >> a; cat a; git status --short', { sessionId: 'c1', workspace });
    expect(heard.result['stdout']).toBe('1\n2\n3\n?? a\n');
    expect(statSync(folder).uid).toBeGreaterThanOrEqual(20_000);
  });

  it('that removes its own workspace, or whose user does, costs the next call nothing', async () => {
    await out('echo x > a', 'w1');
    rmSync(path.join(fixture.home, 'workspaces/w1'), { recursive: true });
    expect(await out('echo y > a; cat a', 'w1')).toBe('y\n');
    const folder = mkdtempSync('/var/tmp/margay-project-');
    const grant = { sessionId: 'w2', workspace: { kind: 'path' as const, path: folder } };
    chownSync(folder, 12_345, 12_345);
    expect((await fixture.shell('echo ok', grant)).result['stdout']).toBe('ok\n');
    rmSync(folder, { recursive: true });
    await expect(fixture.shell('echo ok', grant)).rejects.toMatchObject({ reason: 'workspace_missing' });
  });

  it('leaves no process behind when the daemon cannot start on what it left', async () => {
    // A pipe in the place of the journal keeps the daemon waiting.
    await out('rm /margay/state/journal.ndjson; mkfifo /margay/state/journal.ndjson; kill -9 2', 'p1');
    expect(await out('echo alive', 'p1')).toBe('alive\n');
    const uid = (await out('id -u', 'p1')).trim();
    const { stdout } = spawnSync('ps', ['-eo', 'uid:1,args'], { encoding: 'utf8' });
    const daemons = stdout.split('\n').filter((line) => line.startsWith(`${uid} /margay/bin/node`));
    expect(daemons).toHaveLength(1);
  });

  it('sees nothing of the host behind links that the file tools follow', async () => {
    await out('ln -s / out; ln -s /etc/shadow shadow; ln -s /margay/state/journal.ndjson journal', 'l1');
    for (const name of ['shadow', 'out/etc/shadow', 'out/root/.bashrc', `out${fixture.keysFolder}/session.key.pem`]) {
      const read = await fixture.call('read_file', { path: name }, { sessionId: 'l1' });
      expect(read.finished?.status).toBe('error');
    }
    const edit = { file_path: 'out/usr/x', old_string: '', new_string: 'x' };
    const edited = await fixture.call('file_edit_tool', edit, { sessionId: 'l1' });
    expect(edited.finished?.status).toBe('error');
    expect(existsSync('/usr/x')).toBe(false);
  });

  it('leaves nothing in the home of a session that is released, even if its sandbox had ended before', async () => {
    await out('echo x > ~/kept; kill -9 2', 'r1');
    symlinkSync(fixture.keysFolder, path.join(fixture.home, 'workspaces/r1/link'));
    await fixture.client.release({ sessionId: 'r1' }, fixture.principal);
    const folders = readdirSync(path.join(fixture.home, 'sandboxes')).map((name) =>
      path.join(fixture.home, 'sandboxes', name),
    );
    expect(folders.filter((folder) => existsSync(path.join(folder, 'home/kept')))).toEqual([]);
    expect(existsSync(path.join(fixture.keysFolder, 'session.key.pem'))).toBe(true);
  });
});

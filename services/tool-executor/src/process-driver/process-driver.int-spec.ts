import { execFileSync, spawnSync } from 'node:child_process';
import {
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { ExecutorFixture } from '../executor-fixture';

const isRoot = process.getuid?.() === 0;
const hasBubblewrap = isRoot && worksHere();

function worksHere(): boolean {
  try {
    execFileSync('bwrap', ['--unshare-all', '--ro-bind', '/', '/', 'true'], { stdio: 'ignore' });
    return true;
  } catch {
    return false;
  }
}

const suite = hasBubblewrap ? describe : describe.skip;

suite(
  `the process driver as root with bubblewrap${hasBubblewrap ? '' : ' (skipped: needs root and bubblewrap)'}`,
  () => {
    let fixture: ExecutorFixture;
    beforeAll(async () => {
      process.env['MARGAY_CANARY'] = 'canary-7d1f';
      fixture = await new ExecutorFixture().start();
    });
    afterAll(async () => {
      delete process.env['MARGAY_CANARY'];
      await fixture.remove();
    });
    const out = async (command: string, grant = {}): Promise<string> => {
      const heard = await fixture.shell(command, grant);
      return String(heard.result['stdout'] ?? heard.result['text']);
    };

    it('finds bubblewrap', () => {
      expect(fixture.isolation).toBe('bwrap');
    });

    it('runs commands as a user of its own in /workspace', async () => {
      const text = await out('id -u; pwd; touch here; stat -c %u here; echo $HOME');
      expect(text).toMatch(/^2\d{4}\n\/workspace\n2\d{4}\n\/home\/agent\n$/);
      expect(existsSync(path.join(fixture.home, 'workspaces/s1/here'))).toBe(true);
    });

    it('hides the secrets, the environment and the processes of the host', async () => {
      const secret = path.join(fixture.keysFolder, 'session.key.pem');
      const text = await out(
        `cat /etc/shadow ${secret}; ls /root ${fixture.home}; cat /proc/[0-9]*/environ | tr "\\0" "\\n"; env; ps -e | wc -l`,
      );
      expect(text).not.toContain('canary-7d1f');
      expect(text).not.toContain('PRIVATE KEY');
      expect(text).not.toMatch(/^root:/m);
      expect(text).toContain('cat: /etc/shadow: No such file or directory');
      expect(Number(/(\d+)\s*$/.exec(text)?.[1])).toBeLessThan(12);
    });

    it('has no network, not even the loopback of the host', async () => {
      const server = createServer((socket) => socket.end('reached'));
      await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
      const { port } = server.address() as { port: number };
      try {
        const text = await out(
          `(exec 3<>/dev/tcp/127.0.0.1/${port} && cat <&3) 2>&1; ls /sys/class/net /run 2>&1; cat /proc/net/dev`,
        );
        expect(text).toContain('Connection refused');
        expect(text).not.toContain('reached');
        expect(text.split('\n').filter((line) => /^\s*\w+:\s*\d/.test(line))).toHaveLength(1);
      } finally {
        server.close();
      }
    });

    it('writes nowhere but in the workspace, its home and /tmp', async () => {
      const text = await out(
        'for d in / /usr /etc /margay /margay/lib /margay/bin /margay/cache /var /run /home; do touch $d/x 2>/dev/null && echo "wrote $d"; done; touch /tmp/x ~/x x && echo fine; echo > /margay/bin/node; echo > /margay/trust.pem; mount -t tmpfs t /tmp; unshare -U true; exit 0',
      );
      expect(text).toContain('fine');
      expect(text).not.toContain('wrote');
      expect(text).toMatch(/trust\.pem: Read-only file system/);
    });

    it('cannot signal or see processes of the host', async () => {
      const heard = await fixture.shell(`kill -9 ${process.pid} 2>&1; ls -d /proc/${process.pid} 2>&1; kill -9 -1`);
      expect(process.pid).toBeGreaterThan(0);
      expect(JSON.stringify(heard.result)).not.toContain(`"/proc/${process.pid}\\n"`);
      // Killing everything it can reach ends its own daemon at most; the next call has a sandbox again.
      expect(await out('echo back')).toBe('back\n');
    });

    it('outlives a fork bomb', async () => {
      const bomb = await fixture.call(
        'aider_shell_tool',
        { command: 'b() { b | b & }; b; sleep 2; echo end', timeout: 8 },
        { sessionId: 's2' },
      );
      expect(bomb.finished?.status).toBeDefined();
      const count = Number(execFileSync('sh', ['-c', 'ps -e | wc -l']).toString());
      expect(count).toBeLessThan(2_000);
      await fixture.client.release({ sessionId: 's2' }, fixture.principal);
      expect(await out('echo alive', { sessionId: 's2' })).toBe('alive\n');
    });

    it('ends a command that eats memory, not the machine', async () => {
      const hog = 'python3 -c "x = []\nwhile True: x.append(bytearray(50000000))" 2>&1 | tail -1; echo over';
      expect(await out(hog, { sessionId: 's3' })).toMatch(/over\n$/);
      const many =
        'for i in 1 2 3; do python3 -c "x = bytearray(1500000000); import time; time.sleep(1)" & done; wait; echo over';
      const text = await out(many, { sessionId: 's3' });
      expect(text === 'over\n' || text.includes('over') || text.includes('unknown')).toBe(true);
      expect(await out('echo alive', { sessionId: 's3' })).toBe('alive\n');
    });

    it('has the limits of experiments in the class strict, which ends the sandbox of another class', async () => {
      const first = await fixture.shell('echo kept > file; ulimit -n', { sessionId: 'c1' });
      expect(first.output).toBe('1024\n');
      const grant = { sessionId: 'c1', sandboxClass: 'strict', epoch: 2 };
      const strict = await fixture.shell('ulimit -t; ulimit -f; ulimit -n; ulimit -u; cat file', grant);
      // Seconds, blocks of 1 KiB, files, processes beside the daemon and the first one.
      expect(strict.output).toBe('120\n65536\n256\n18\nkept\n');
      expect((await fixture.shell('true', grant)).incarnation).toBe(strict.incarnation);
      const { sandboxClasses } = await fixture.client.listTools({}, fixture.principal);
      expect(sandboxClasses).toEqual(['default', 'strict']);
      const unknown = fixture.shell('true', { sessionId: 'c1', sandboxClass: 'dense', epoch: 3 });
      await expect(unknown).rejects.toMatchObject({ reason: 'sandbox_class_unknown' });
    });

    it('shows Node and the usual tools', async () => {
      expect(
        await out('node -p 1+1; git --version | cut -d" " -f1; bash --version | head -c 8; python3 -c "print(3)"'),
      ).toBe('2\ngit\nGNU bash3\n');
      expect(await out('awk "BEGIN { print 4 }"; mktemp | cut -c1-5; whoami; getent hosts localhost | wc -l')).toMatch(
        /^4\n\/tmp\/\nagent\n/,
      );
    });

    describe('with a folder in place', () => {
      let folder: string;
      beforeEach(() => {
        folder = mkdtempSync(path.join(tmpdir(), 'margay-project-'));
        writeFileSync(path.join(folder, 'a.txt'), 'hello\n');
      });
      afterEach(() => rmSync(folder, { recursive: true, force: true }));
      const inPlace = (sessionId: string) => ({ sessionId, workspace: { kind: 'path' as const, path: folder } });

      it('works as the owner of the folder and never changes owners', async () => {
        chownSync(folder, 12_345, 12_345);
        const heard = await fixture.shell('id -u; cat a.txt; touch new', inPlace('p1'));
        expect(heard.result['stdout']).toBe('12345\nhello\n');
        expect(statSync(path.join(folder, 'new')).uid).toBe(12_345);
        expect(statSync(path.join(folder, 'a.txt')).uid).toBe(0);
      });

      it('refuses a folder of root and says what to do', async () => {
        await expect(fixture.shell('id', inPlace('p2'))).rejects.toMatchObject({
          code: 'FAILED_PRECONDITION',
          reason: 'workspace_owned_by_root',
          message: expect.stringContaining('--workspace-copy'),
        });
        expect(statSync(folder).uid).toBe(0);
      });

      it('gives a copy below the home of Margay to the user of the sandbox', async () => {
        folder = path.join(fixture.home, 'workspaces', 'copy-of-project');
        mkdirSync(folder);
        writeFileSync(path.join(folder, 'a.txt'), 'copied\n');
        expect((await fixture.shell('cat a.txt; echo more >> a.txt', inPlace('p3'))).result['stdout']).toBe('copied\n');
        expect(statSync(path.join(folder, 'a.txt')).uid).toBeGreaterThanOrEqual(20_000);
      });

      it.each(['/', '/etc', '/root'])('refuses %s', async (place) => {
        folder = mkdtempSync(path.join(tmpdir(), 'margay-unused-'));
        const grant = { sessionId: 'p4', workspace: { kind: 'path' as const, path: place } };
        await expect(fixture.shell('id', grant)).rejects.toMatchObject({ reason: 'workspace_refused' });
        const home = { sessionId: 'p4', workspace: { kind: 'path' as const, path: fixture.keysFolder } };
        await expect(fixture.shell('id', home)).rejects.toMatchObject({ reason: 'workspace_refused' });
      });
    });

    it('reaches workspaces below folders that only root may enter', async () => {
      const folder = mkdtempSync('/root/margay-project-');
      try {
        chownSync(folder, 12_345, 12_345);
        const grant = { sessionId: 'p5', workspace: { kind: 'path' as const, path: folder } };
        expect((await fixture.shell(`echo ok > x; cat ${folder}/x`, grant)).result['stdout']).toBe('ok\n');
      } finally {
        await fixture.client.release({ sessionId: 'p5' }, fixture.principal);
        rmSync(folder, { recursive: true });
      }
    });

    it('keeps sessions apart', async () => {
      await out('echo secret > mine; echo secret > /tmp/mine', { sessionId: 'a1' });
      const text = await out(
        'ls / /tmp /workspace ~; find /home /margay /tmp /workspace /var -name mine 2>/dev/null; id -u',
        { sessionId: 'a2' },
      );
      expect(text).not.toContain('mine');
      expect(await out('id -u', { sessionId: 'a1' })).not.toBe(await out('id -u', { sessionId: 'a2' }));
    });

    it('leaves no process, control group or socket after release', async () => {
      const length = `4000.${process.pid}`;
      await out(`sleep ${length} & echo started`, { sessionId: 'z1' });
      const marked = (): string => spawnSync('pgrep', ['-xf', `sleep ${length}`], { encoding: 'utf8' }).stdout;
      expect(marked()).not.toBe('');
      await fixture.client.release({ sessionId: 'z1' }, fixture.principal);
      expect(marked()).toBe('');
      const records = readdirSync(path.join(fixture.home, 'sandboxes')).map((name) =>
        JSON.parse(readFileSync(path.join(fixture.home, 'sandboxes', name, 'record.json'), 'utf8')),
      );
      expect(records.find((record) => record.sessionId === 'z1')).toMatchObject({ processes: [] });
    });
  },
);

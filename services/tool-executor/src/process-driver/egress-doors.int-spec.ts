import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import path from 'node:path';
import { ExecutorFixture } from '../executor-fixture';
import { sandboxIdOf } from './sandbox-folder';

const canTry =
  process.getuid?.() === 0 && spawnSync('bwrap', ['--unshare-all', '--ro-bind', '/', '/', 'true']).status === 0;
const suite = canTry ? describe : describe.skip;

/** Stands in for the proxy: answers with the first line it hears, which says who asks, and the request's. */
function echoServer(sockets: Set<Socket>): Server {
  return createServer({ allowHalfOpen: true }, (socket) => {
    let heard = '';
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('data', (chunk) => {
      heard += String(chunk);
      if (!heard.includes('\r\n\r\n')) return;
      const body = heard.split('\r\n').slice(0, 1).join('\n');
      socket.end(`HTTP/1.1 200 OK\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`);
    });
  });
}

suite(`a sandbox with a way out${canTry ? '' : ' (skipped: needs root and bubblewrap)'}`, () => {
  let fixture: ExecutorFixture;
  let proxy: Server;
  let host: Server;
  const sockets = new Set<Socket>();
  const environment = () => ({ MARGAY_EGRESS_LOCAL_SOCKET: path.join(fixture.home, 'proxy.sock') });

  beforeAll(async () => {
    fixture = new ExecutorFixture();
    [proxy, host] = [echoServer(sockets), echoServer(sockets)];
    await new Promise<void>((resolve) => proxy.listen(environment().MARGAY_EGRESS_LOCAL_SOCKET, resolve));
    await new Promise<void>((resolve) => host.listen(0, '127.0.0.1', resolve));
    await fixture.start(environment());
  });
  afterAll(async () => {
    await fixture.remove();
    for (const socket of sockets) socket.destroy();
    for (const server of [proxy, host]) await new Promise((resolve) => server.close(resolve));
  });

  const out = async (command: string, sessionId: string): Promise<string> => {
    const heard = await fixture.shell(command, { sessionId });
    return String(heard.result['stdout'] ?? heard.result['text']).trim();
  };
  const callerOf = (sessionId: string) => ({
    tenantId: 't1',
    sandboxId: sandboxIdOf(sessionId),
    sessionId,
    sandboxClass: 'default',
  });
  const ask = async (sessionId: string): Promise<unknown> => {
    const [caller = '', request] = (await out('curl -sS http://web.example/a', sessionId)).split('\n');
    expect(request).toBe('GET http://web.example/a HTTP/1.1');
    return JSON.parse(caller);
  };

  it('reaches the proxy by the usual variables, and its socket says who asks', async () => {
    expect(await ask('e1')).toEqual(callerOf('e1'));
    expect(await ask('e2')).toEqual(callerOf('e2'));
  });

  it('has no name or secret of its own that it could hand to others', async () => {
    expect(await out('env | grep -i proxy | sort', 'e1')).toBe(
      [
        ...['HTTPS_PROXY=http://127.0.0.1:3128', 'HTTP_PROXY=http://127.0.0.1:3128', 'NODE_USE_ENV_PROXY=1'],
        ...['NO_PROXY=localhost,127.0.0.1,::1', 'http_proxy=http://127.0.0.1:3128'],
        ...['https_proxy=http://127.0.0.1:3128', 'no_proxy=localhost,127.0.0.1,::1'],
      ]
        .sort()
        .join('\n'),
    );
  });

  it('has no other way out', async () => {
    const { port } = host.address() as AddressInfo;
    const script = `
import errno, os, socket
def attempt(name, act):
    try:
        act()
        print(name, "reached")
    except OSError as error:
        print(name, "refused")
def tcp(address, port, family=socket.AF_INET):
    def act():
        s = socket.socket(family, socket.SOCK_STREAM); s.settimeout(2); s.connect((address, port))
    return act
def udp(address, port):
    def act():
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(2); s.connect((address, port)); s.send(b"x"); s.recv(1)
    return act
attempt("host", tcp("127.0.0.1", ${port}))
attempt("metadata", tcp("169.254.169.254", 80))
attempt("metadata6", tcp("fd00:ec2::254", 80, socket.AF_INET6))
attempt("dns-tcp", tcp("127.0.0.53", 53))
attempt("dns-udp", udp("127.0.0.53", 53))
attempt("dns-out", udp("192.0.2.1", 53))
attempt("name", lambda: socket.getaddrinfo("web.example", 80))
attempt("raw", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1))
attempt("packet", lambda: socket.socket(17, socket.SOCK_RAW, 3))
attempt("proxy", tcp("127.0.0.1", 3128))
print(sorted(os.listdir("/sys/class/net")) if os.path.exists("/sys/class/net") else ["lo"])`;
    const lines = (await out(`python3 - <<'END'\n${script}\nEND`, 'e1')).split('\n');
    expect(lines.filter((line) => line.endsWith('reached'))).toEqual(['proxy reached']);
    expect(lines.filter((line) => line.endsWith('refused'))).toHaveLength(9);
    expect(lines.at(-1)).toBe("['lo']");
  });

  it('cannot put anything into the place of its socket, nor see that of others', async () => {
    const tried = await out('rm -f /margay/egress/p; touch /margay/egress/x; ls -A /margay/egress; ls /margay', 'e1');
    expect(tried).toContain('Read-only file system');
    expect(tried).not.toMatch(/^[px]$/m);
    const folders = readdirSync(path.join(fixture.home, 'sandboxes')).map((name) =>
      path.join(fixture.home, 'sandboxes', name, 'egress'),
    );
    for (const folder of folders) {
      expect(statSync(folder)).toMatchObject({ uid: 0 });
      expect(statSync(path.join(folder, 'p')).mode & 0o777).toBe(0o600);
    }
    const users = folders.map((folder) => statSync(path.join(folder, 'p')).uid);
    expect(new Set(users).size).toBe(folders.length);
  });

  it('is closed to the class strict, also for whoever had it before', async () => {
    expect(await ask('e3')).toEqual(callerOf('e3'));
    const strict = { sessionId: 'e3', sandboxClass: 'strict', epoch: 2 };
    const { output } = await fixture.shell(
      'env | grep -ic proxy; ls /margay; curl -sS -m 5 http://127.0.0.1:3128',
      strict,
    );
    expect(output).toMatch(/^0\n/);
    expect(output).not.toMatch(/^egress$/m);
    expect(output).toMatch(/refused|Failed to connect|Couldn't connect/i);
    expect(existsSync(path.join(fixture.home, 'sandboxes', sandboxIdOf('e3'), 'egress', 'p'))).toBe(false);
  });

  it('is adopted with its way out by the next life of tool-executor', async () => {
    const { incarnation } = await fixture.shell('true', { sessionId: 'e1' });
    fixture.crash();
    await fixture.start(environment());
    expect(await ask('e1')).toEqual(callerOf('e1'));
    expect((await fixture.shell('true', { sessionId: 'e1' }))?.incarnation).toBe(incarnation);
  });

  it('has none where no proxy is configured', async () => {
    await fixture.stop();
    await fixture.start();
    expect(await out('env | grep -ci proxy; ls -d /margay/egress; curl -sS -m 5 http://127.0.0.1:3128', 'e1')).toMatch(
      /^0\n.*No such file.*\n.*(Failed|Couldn't) .*connect/s,
    );
  });
});

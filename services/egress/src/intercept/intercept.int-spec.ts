import { once } from 'node:events';
import { statSync } from 'node:fs';
import type { IncomingHttpHeaders } from 'node:http';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { setTimeout as delay } from 'node:timers/promises';
import type { TLSSocket } from 'node:tls';
import { hostIdentity, InterceptFixture } from './intercept-fixture';

let fixture: InterceptFixture;
let port: number;
let seen: { method?: string; url?: string; headers: IncomingHttpHeaders; body: string }[];

beforeEach(() => {
  fixture = new InterceptFixture();
  seen = [];
});
afterEach(() => fixture.remove());

const at = (name = 'git.example') => `${name}:${port}`;

async function startHost(
  rule: object = {},
  identity = hostIdentity('git.example'),
  limits: object = {},
): Promise<void> {
  port = await fixture.serveHost(
    'git.example',
    (request, response) => {
      void text(request).then((body) => {
        seen.push({ method: request.method, url: request.url, headers: request.headers, body });
        if (request.url?.startsWith('/team/away'))
          return response.writeHead(302, { Location: 'https://inner.example/secret' }).end();
        return response.end('hello');
      });
    },
    identity,
  );
  await fixture.start({
    private: [{ host: 'git.example', cidr: '127.0.0.0/8', ports: [port] }],
    policy: {
      rules: [
        { id: 'git', hosts: ['git.example'], ports: [port], intercept: true, paths: ['/team/**'], ...rule },
        { id: 'inner', hosts: ['inner.example'] },
      ],
      limits,
    },
  });
}

describe('an intercepted tunnel', () => {
  it('lets through what the rule names, and nothing else of the host', async () => {
    await startHost({ methods: ['GET', 'POST'] });
    const answer = await fixture.ask(at(), '/team/a?b=c', { method: 'POST', body: 'abc', headers: { 'X-Mine': '1' } });
    expect(answer).toMatchObject({ status: 200, body: 'hello' });
    for (const [method, resource] of [
      ['GET', '/other/a'],
      ['GET', '/team/../other/a'],
      ['GET', '/team/%2e%2e/other/a'],
      ['GET', '/team/..%2fother'],
      ['PUT', '/team/a'],
    ] as const)
      expect(await fixture.ask(at(), resource, { method })).toMatchObject({
        status: 403,
        headers: { 'x-margay-egress': 'egress_denied' },
      });
    expect(seen).toMatchObject([
      { method: 'POST', url: '/team/a?b=c', body: 'abc', headers: { host: at(), 'x-mine': '1' } },
    ]);
    await fixture.stop();
    expect(fixture.audit).toContainEqual(
      expect.objectContaining({ host: 'git.example', port, rule: 'git', decision: 'allowed', bytesUp: 3, count: 1 }),
    );
    expect(fixture.audit).toContainEqual(
      expect.objectContaining({ method: 'PUT', path: '/team/a', decision: 'denied', why: 'no_rule' }),
    );
  });

  it('serves many requests on one connection, each judged', async () => {
    await startHost();
    const socket = await fixture.speak(at());
    const line = (resource: string) => `GET ${resource} HTTP/1.1\r\nHost: ${at()}\r\n\r\n`;
    socket.write(`${line('/team/1')}${line('/team/2')}${line('/other')}`);
    const told = await text(socket);
    expect(told.match(/HTTP\/1.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 200', 'HTTP/1.1 403']);
    expect(seen.map(({ url }) => url).sort()).toEqual(['/team/1', '/team/2']);
  });

  it('shows a certificate for that host only, which the authority of the installation vouches for', async () => {
    await startHost();
    const socket = await fixture.speak(at());
    await once(socket, 'secureConnect');
    expect(socket.authorized).toBe(true);
    expect(socket.getPeerX509Certificate()?.subjectAltName).toBe('DNS:git.example');
    expect(statSync(path.join(fixture.folder, 'ca', 'ca.key.pem')).mode & 0o777).toBe(0o600);
    socket.destroy();
  });

  it.each(['other.example', ''])('is cut when TLS names %j instead', async (servername) => {
    await startHost();
    const socket = await fixture.speak(at(), servername);
    await closed(socket);
    expect(seen).toEqual([]);
    await fixture.stop();
    expect(fixture.audit).toMatchObject([{ decision: 'denied', reason: 'egress_denied', host: 'git.example' }]);
  });

  it('speaks HTTP/1.1 alone, whatever else the client offers', async () => {
    await startHost();
    const both = await fixture.speak(at(), 'git.example', ['h2', 'http/1.1']);
    await once(both, 'secureConnect');
    expect(both.alpnProtocol).toBe('http/1.1');
    both.destroy();
    const only = await fixture.speak(at(), 'git.example', ['h2']);
    const [error] = (await once(only, 'error')) as [NodeJS.ErrnoException];
    expect(error.code).toBe('ERR_SSL_TLSV1_ALERT_NO_APPLICATION_PROTOCOL');
  });

  it('refuses requests for another host than the one it was opened to', async () => {
    await startHost();
    for (const head of [
      'GET /team/a HTTP/1.1\r\nHost: other.example',
      'GET /team/a HTTP/1.1\r\nHost: git.example', // the port belongs to it
      `GET /team/a HTTP/1.1\r\nHost: ${at()}\r\nHost: other.example`,
      `GET https://other.example/team/a HTTP/1.1\r\nHost: ${at()}`,
      `GET //other.example/team/a HTTP/1.1\r\nHost: ${at()}`,
      `CONNECT other.example:443 HTTP/1.1\r\nHost: ${at()}`,
    ]) {
      const socket = await fixture.speak(at());
      socket.write(`${head}\r\nConnection: close\r\n\r\n`);
      expect(await text(socket)).not.toMatch(/^HTTP\/1.1 200/);
    }
    expect(seen).toEqual([]);
  });

  it('lets no second request be smuggled', async () => {
    await startHost();
    const smuggled = `GET /other/smuggled HTTP/1.1\r\nHost: ${at()}\r\n\r\n`;
    for (const framing of [
      'Content-Length: 5\r\nTransfer-Encoding: chunked',
      'Transfer-Encoding: xchunked',
      'Content-Length: 5\r\nContent-Length: 6',
      'Transfer-Encoding : chunked',
    ]) {
      const socket = await fixture.speak(at());
      socket.end(`POST /team/a HTTP/1.1\r\nHost: ${at()}\r\n${framing}\r\n\r\n0\r\n\r\n${smuggled}`);
      expect(await text(socket)).toMatch(/^HTTP\/1.1 400 /);
    }
    expect(seen.filter(({ url }) => url?.includes('smuggled'))).toEqual([]);
  });

  it('counts as a connection of its sandbox while it is open', async () => {
    await startHost({}, hostIdentity('git.example'), { perSandbox: 2 });
    const held = await Promise.all([fixture.speak(at()), fixture.speak(at())]);
    await Promise.all(held.map((socket) => once(socket, 'secureConnect')));
    await closed(await fixture.speak(at()));
    const [first, second] = held;
    first.write(`GET /team/a HTTP/1.1\r\nHost: ${at()}\r\n\r\n`);
    expect(String((await once(first, 'data'))[0])).toMatch(/^HTTP\/1.1 200/);
    second.destroy();
    let isOpen = false;
    while (!isOpen) {
      const socket = await fixture.speak(at());
      isOpen = await Promise.race([once(socket, 'secureConnect').then(() => true), closed(socket).then(() => false)]);
    }
    await fixture.stop();
    expect(fixture.audit).toContainEqual(expect.objectContaining({ reason: 'egress_limit', decision: 'denied' }));
  });

  it('judges a redirect anew, since the client follows it', async () => {
    await startHost();
    fixture.names.set('inner.example', ['127.0.0.1']);
    const { status, headers } = await fixture.ask(at(), '/team/away');
    expect([status, headers.location]).toEqual([302, 'https://inner.example/secret']);
    const { head } = await fixture.tunnel('inner.example:443');
    expect(head).toMatch(/^HTTP\/1.1 502 .*X-Margay-Egress: egress_address/s);
  });

  it('refuses a name that has turned private by the time of the request', async () => {
    await startHost();
    const socket = await fixture.speak(at());
    await once(socket, 'secureConnect');
    fixture.names.set('git.example', ['169.254.169.254']);
    socket.end(`GET /team/a HTTP/1.1\r\nHost: ${at()}\r\n\r\n`);
    expect(await text(socket)).toMatch(/^HTTP\/1.1 502 .*X-Margay-Egress: egress_address/s);
    expect(seen).toEqual([]);
  });

  it('believes no host that nobody trustworthy vouches for', async () => {
    await startHost({}, hostIdentity('other.example'));
    expect(await fixture.ask(at(), '/team/a')).toMatchObject({
      status: 502,
      headers: { 'x-margay-egress': 'egress_connect' },
    });
    expect(seen).toEqual([]);
  });

  it('acts on a new policy at its next request', async () => {
    await startHost();
    const socket = await fixture.speak(at());
    const ask = () => socket.write(`GET /team/a HTTP/1.1\r\nHost: ${at()}\r\n\r\n`);
    ask();
    expect(String((await once(socket, 'data'))[0])).toMatch(/^HTTP\/1.1 200/);
    fixture.setPolicy({ policy: { mode: 'none' } });
    while (!(await fixture.tunnel(at())).head.startsWith('HTTP/1.1 403')) await delay(50);
    ask();
    expect(await text(socket)).toContain('HTTP/1.1 403');
    expect(seen).toHaveLength(1);
  });
});

const closed = (socket: TLSSocket) => new Promise((resolve) => socket.once('close', resolve));
